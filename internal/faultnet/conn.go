package faultnet

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// conn is one connection. Bytes are moved by the goroutines that call Read and
// Write; a goroutine of its own, the pump, runs only while something written is
// held back.
//
// Lock order: wmu or rmu, then the Net's mutex, then mu. mu is held neither
// across I/O nor while calling the Net.
type conn struct {
	net   *Net
	id    uint64
	addr  string
	inner net.Conn // what carries frames: raw, or TLS over it
	raw   net.Conn

	wmu sync.Mutex // one Write at a time
	out outgoing

	rmu sync.Mutex // one Read at a time
	in  incoming

	mu       sync.Mutex
	sleepers int           // goroutines that wait for changed
	changed  chan struct{} // closed and replaced at a change while somebody waits
	ended    error         // what the client reads from now on; nil while alive
	closed   bool          // the client called Close
	stray    bool          // ended for the client, still owed to the broker
	stalled  bool
	readBy   time.Time
	writeBy  time.Time
	reading  bool          // a Read is inside inner.Read
	woken    bool          // inner's read deadline is in the past to end that Read
	pending  []*exchange   // requests without an answer, oldest first
	queue    []outItem     // written by the client, not yet to the broker
	queued   int           // bytes in queue
	pumping  chan struct{} // closed when the pump ends; nil without one
}

func newConn(n *Net, addr string, inner, raw net.Conn) *conn {
	return &conn{net: n, addr: addr, inner: inner, raw: raw, changed: make(chan struct{})}
}

// Close closes the connection and drops what is held on it.
func (c *conn) Close() error {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	c.mu.Unlock()
	if again {
		return c.opError("close", net.ErrClosed)
	}
	err := c.end(c.opError("read", net.ErrClosed), c.inner)
	c.mu.Lock()
	pumping, stray := c.pumping, c.stray
	c.mu.Unlock()
	if pumping != nil && !stray { // a stray lives on, for the broker
		<-pumping
	}
	return err
}

// cut breaks the connection as the network would.
func (c *conn) cut() { _ = c.end(io.EOF, c.raw) }

// end ends the connection for both sides by closing closer; only the first call
// does anything.
func (c *conn) end(why error, closer io.Closer) error {
	c.mu.Lock()
	if c.overLocked() {
		c.mu.Unlock()
		return nil
	}
	c.ended = why
	c.dropLocked()
	c.mu.Unlock()
	c.net.leave(c, false)
	return closer.Close()
}

// overLocked tells whether the client can do no more with the connection.
func (c *conn) overLocked() bool { return c.ended != nil }

// sever cuts, and gives up what is still owed to the broker.
func (c *conn) sever() {
	c.mu.Lock()
	if c.ended != nil && !c.stray {
		c.mu.Unlock()
		return
	}
	if c.ended == nil {
		c.ended = io.EOF
	}
	c.stray = false
	c.dropLocked()
	c.mu.Unlock()
	c.net.leave(c, false)
	_ = c.raw.Close()
}

func (c *conn) dropLocked() {
	c.queue, c.queued = nil, 0
	c.notifyLocked()
}

// notifyLocked wakes the goroutines that sleep on this connection.
func (c *conn) notifyLocked() {
	if c.sleepers > 0 {
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// wakeLocked also ends a Read that waits for the broker, to look again at what
// it shall do.
func (c *conn) wakeLocked() {
	c.notifyLocked()
	if c.reading && !c.woken {
		c.woken = true
		_ = c.inner.SetReadDeadline(time.Unix(1, 0))
	}
}

// sleepLocked waits for a change of the connection, for release, or until the
// earliest of the times that are not zero. It gives mu up meanwhile.
func (c *conn) sleepLocked(release <-chan struct{}, times ...time.Time) {
	var earliest time.Time
	for _, t := range times {
		if !t.IsZero() && (earliest.IsZero() || t.Before(earliest)) {
			earliest = t
		}
	}
	var timeout <-chan time.Time
	if !earliest.IsZero() {
		timer := time.NewTimer(time.Until(earliest))
		defer timer.Stop()
		timeout = timer.C
	}
	changed := c.changed
	c.sleepers++
	c.mu.Unlock()
	select {
	case <-changed:
	case <-release:
	case <-timeout:
	}
	c.mu.Lock()
	c.sleepers--
}

func (c *conn) setStalled(stalled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stalled != stalled {
		c.stalled = stalled
		c.wakeLocked()
	}
}

// SetDeadline sets both deadlines.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline bounds present and future Reads, also those of a held answer.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.settableLocked(); err != nil {
		return err
	}
	c.readBy = t
	c.notifyLocked()
	if c.woken || c.ended != nil {
		return nil // the Read that was woken sets it; a stray is not the client's
	}
	return c.inner.SetReadDeadline(t)
}

// SetWriteDeadline bounds present and future Writes, not what was taken before.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.settableLocked(); err != nil {
		return err
	}
	c.writeBy = t
	c.notifyLocked()
	if c.pumping != nil || c.ended != nil {
		return nil // inner's writer is the pump, which must not be interrupted
	}
	return c.inner.SetWriteDeadline(t)
}

func (c *conn) settableLocked() error {
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	return nil
}

// LocalAddr returns the local address of the real connection.
func (c *conn) LocalAddr() net.Addr { return c.raw.LocalAddr() }

// RemoteAddr returns the broker's address.
func (c *conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }

func (c *conn) opError(op string, err error) error {
	remote := c.raw.RemoteAddr()
	network := "tcp"
	if remote != nil {
		network = remote.Network()
	}
	return &net.OpError{Op: op, Net: network, Source: c.raw.LocalAddr(), Addr: remote, Err: err}
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
