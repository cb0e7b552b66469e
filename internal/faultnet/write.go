package faultnet

import (
	"bytes"
	"errors"
	"net"
	"os"
	"syscall"
)

// outgoing is the state of the client's byte stream, guarded by wmu.
type outgoing struct {
	err    error  // of an earlier Write: what followed it would be garbage
	opaque bool   // not a stream of requests
	head   []byte // beginning of a frame whose header is incomplete
	id     string // last client id, to not make the same string again
	// rawNext: after this frame come SASL tokens without headers.
	rawNext bool

	// The frame whose header is known and whose end has not come.
	h     header
	rec   *record
	left  int          // bytes still to come
	cands []*Injection // not empty: the frame is collected in whole, then judged
	frame []byte       // what was collected
	keep  bool         // copy the body for the log
	body  []byte
}

// errSwallowed ends a Write that the network cut after taking it.
var errSwallowed = errors.New("swallowed")

// Write takes all of p, possibly holding it back: the beginning of a frame stays
// here until its header is complete, and all of it while a fault may meet it.
// After an error every further Write fails.
func (c *conn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	taken := 0
	for {
		if err := c.writable(); err != nil {
			return taken, err
		}
		if c.out.err != nil || taken == len(p) {
			return taken, c.out.err
		}
		n, err := c.take(p[taken:])
		taken += n
		switch {
		case errors.Is(err, errSwallowed):
			return len(p), nil
		case err != nil:
			c.out.err = err
			return taken, err
		case taken == len(p):
			return taken, nil // although the connection may have ended since
		}
	}
}

func (c *conn) writable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writableLocked()
}

func (c *conn) writableLocked() error {
	switch {
	case c.closed:
		return c.opError("write", net.ErrClosed)
	case c.ended != nil:
		return c.opError("write", errReset)
	case passed(c.writeBy):
		return c.opError("write", os.ErrDeadlineExceeded)
	}
	return nil
}

var errReset = os.NewSyscallError("write", syscall.ECONNRESET)

// take takes bytes from the front of p, at most to the end of a frame.
func (c *conn) take(p []byte) (int, error) {
	o := &c.out
	switch {
	case o.opaque:
		return c.send(p, nil)
	case o.left > 0:
		piece := p[:min(o.left, len(p))]
		o.left -= len(piece)
		return c.continueFrame(piece)
	case o.rawNext:
		o.opaque = true
		return c.send(p, nil)
	case len(o.head) > 0:
		return c.growHead(p)
	}
	h, need, ok := parseHeader(p)
	switch {
	case !ok:
		o.opaque = true
		return c.send(p, nil)
	case need > 0:
		o.head = append(o.head, p...)
		return len(p), nil
	}
	piece := p[:min(h.total, len(p))]
	return c.startFrame(h, piece)
}

// growHead adds to an incomplete header, no more than it is known to need.
func (c *conn) growHead(p []byte) (int, error) {
	o := &c.out
	_, need, _ := parseHeader(o.head)
	n := min(need-len(o.head), len(p))
	o.head = append(o.head, p[:n]...)
	h, need, ok := parseHeader(o.head)
	if ok && need > 0 {
		return n, nil
	}
	head := o.head
	o.head = nil
	var err error
	if ok {
		_, err = c.startFrame(h, head)
	} else {
		o.opaque = true
		_, err = c.send(head, nil)
	}
	return n, err
}

// startFrame begins a frame with the piece that has come so far.
func (c *conn) startFrame(h header, piece []byte) (int, error) {
	o := &c.out
	if id := h.clientID(piece); string(id) != o.id {
		o.id = string(id)
	}
	o.h = h
	o.left = h.total - len(piece)
	o.rawNext = h.key == saslHandshakeKey && h.version == 0
	o.rec, o.cands = c.net.begin(c, h, o.id)
	o.keep = c.net.keeps(h.key, h.total-h.body)
	if len(o.cands) > 0 {
		return c.collect(piece)
	}
	c.expect(&exchange{rec: o.rec, corr: h.corr})
	if o.keep {
		o.body = append(make([]byte, 0, h.total-h.body), piece[h.body:]...)
	}
	return c.pass(piece)
}

func (c *conn) continueFrame(piece []byte) (int, error) {
	o := &c.out
	if len(o.cands) > 0 {
		return c.collect(piece)
	}
	if o.keep {
		o.body = append(o.body, piece...)
	}
	return c.pass(piece)
}

// pass sends a piece of a frame that no fault can meet.
func (c *conn) pass(piece []byte) (int, error) {
	o := &c.out
	if o.left > 0 {
		return c.send(piece, nil)
	}
	if o.keep {
		c.net.keepBody(o.rec, o.body)
		o.body = nil
	}
	return c.send(piece, o.rec)
}

// collect gathers a frame that a fault may meet and judges it when it is whole.
func (c *conn) collect(piece []byte) (int, error) {
	o := &c.out
	if o.left > 0 {
		o.frame = append(o.frame, piece...)
		return len(piece), nil
	}
	frame := piece // the client's memory, if all of the frame is there
	if len(o.frame) > 0 {
		o.frame = append(o.frame, piece...)
		frame, o.frame = o.frame, nil
	}
	return len(piece), c.judge(frame)
}

// send passes bytes on to the broker, behind what is held. rec is the record of
// the frame that ends with them.
func (c *conn) send(b []byte, rec *record) (int, error) {
	c.mu.Lock()
	if c.pumping != nil || c.stalled {
		defer c.mu.Unlock()
		if err := c.enqueueLocked(outItem{b: bytes.Clone(b), rec: rec}); err != nil {
			return 0, err
		}
		return len(b), nil
	}
	c.mu.Unlock()
	n, err := c.inner.Write(b)
	if err != nil {
		if ended := c.writable(); ended != nil {
			err = ended
		}
		return n, err
	}
	c.net.delivered(rec)
	return n, nil
}
