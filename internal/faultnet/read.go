package faultnet

import (
	"encoding/binary"
	"net"
	"os"
	"slices"
)

// incoming is the state of the broker's byte stream, guarded by rmu.
type incoming struct {
	err    error  // inner's, once it has ended
	opaque bool   // not a stream of answers
	ready  []byte // for the client
	raw    []byte // from the broker, not judged yet; begins at a frame

	// The frame that is passing.
	left int       // bytes still to come
	cur  *exchange // nil: nobody asked for it
	tee  bool
	copy []byte
}

// Read returns bytes of answers. One that nothing happens to goes from the
// broker's connection into p.
func (c *conn) Read(p []byte) (int, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	in := &c.in
	for {
		if err := c.readable(); err != nil {
			return 0, err
		}
		if len(p) == 0 {
			return 0, nil
		}
		if len(in.ready) > 0 {
			n := copy(p, in.ready)
			in.ready = in.ready[n:]
			return n, nil
		}
		if in.left == 0 {
			if ex := c.localHead(); ex != nil {
				c.serve(ex, nil)
				continue
			}
		}
		if c.digest() {
			continue
		}
		if in.err != nil {
			if len(in.raw) == 0 {
				return 0, in.err
			}
			in.ready, in.raw = in.raw, nil // an unfinished frame: not ours to judge
			if _, special := c.specialHead(in.ready); special {
				in.ready = nil
			}
			continue
		}
		if n, err := c.refill(p); n > 0 || err != nil {
			return n, err
		}
	}
}

// readable waits while the connection is stalled and tells why it cannot be
// read any more.
func (c *conn) readable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return c.opError("read", net.ErrClosed)
		case c.ended != nil:
			return c.ended
		case passed(c.readBy):
			return c.opError("read", os.ErrDeadlineExceeded)
		case !c.stalled:
			return nil
		}
		c.sleepLocked(nil, c.readBy)
	}
}

// refill reads from the broker: into p and on to the client if it can, else
// into raw. It returns 0, nil when there is something to look at first.
func (c *conn) refill(p []byte) (int, error) {
	in := &c.in
	direct := len(in.raw) == 0
	buf := p
	if !direct {
		in.raw = slices.Grow(in.raw, max(512, c.missing()))
		buf = in.raw[len(in.raw):cap(in.raw)]
	}
	n, stalled, err := c.readInner(buf)
	switch {
	case err != nil && isTimeout(err):
		return 0, err
	case err != nil:
		in.err = err
	}
	if !direct {
		in.raw = in.raw[:len(in.raw)+n]
		return 0, nil
	}
	passed := 0
	if !stalled {
		passed = c.scan(buf[:n])
	}
	in.raw = append(in.raw, buf[passed:n]...)
	return passed, nil
}

// readInner reads once from the broker unless something else is to be done
// first. A Read that was woken returns without an error.
func (c *conn) readInner(buf []byte) (n int, stalled bool, err error) {
	c.mu.Lock()
	if c.ended != nil || c.in.left == 0 && len(c.pending) > 0 && c.pending[0].kind == exLocal {
		c.mu.Unlock()
		return 0, false, nil
	}
	c.reading = true
	c.mu.Unlock()

	n, err = c.inner.Read(buf)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
	if c.woken {
		c.woken = false
		if c.ended == nil {
			_ = c.inner.SetReadDeadline(c.readBy)
		}
		if isTimeout(err) {
			err = nil
		}
	}
	return n, c.stalled, err
}

// digest makes progress with raw: moves what may pass to ready, or deals with a
// whole special frame. It reports whether there was any.
func (c *conn) digest() bool {
	in := &c.in
	if n := c.scan(in.raw); n > 0 {
		in.ready = c.shift(n)
		return true
	}
	ex, special := c.specialHead(in.raw)
	switch {
	case special && ex == nil:
		return true // after the answer made here
	case !special || c.missing() > 0:
		return false
	}
	if !c.holdOver(ex) {
		return true // time has passed: see whether the client still waits
	}
	c.serve(ex, c.shift(frameSize(in.raw)))
	return true
}

// shift takes n bytes from the front of raw.
func (c *conn) shift(n int) []byte {
	raw := c.in.raw
	c.in.raw = raw[n:]
	if n == len(raw) {
		c.in.raw = nil
	}
	return raw[:n:n]
}

// missing returns how many bytes the frame at the front of raw lacks.
func (c *conn) missing() int {
	if len(c.in.raw) < 8 {
		return 8 - len(c.in.raw)
	}
	return max(0, frameSize(c.in.raw)-len(c.in.raw))
}

func frameSize(b []byte) int { return 4 + int(int32(binary.BigEndian.Uint32(b))) }

// scan walks over bytes from the broker and returns how many of them may go to
// the client as they are.
func (c *conn) scan(b []byte) int {
	in := &c.in
	n := 0
	for n < len(b) {
		switch {
		case in.opaque:
			return len(b)
		case in.left > 0:
			k := min(in.left, len(b)-n)
			if in.tee {
				in.copy = append(in.copy, b[n:n+k]...)
			}
			in.left -= k
			n += k
			if in.left == 0 {
				c.passedWhole()
			}
		case !c.openFrame(b[n:]):
			return n
		}
	}
	return n
}

// openFrame begins to pass the frame that b begins with; false if more of it is
// needed to tell, or if it is not to pass.
func (c *conn) openFrame(b []byte) bool {
	in := &c.in
	if len(b) < 4 {
		return false
	}
	if size := frameSize(b) - 4; size < 4 || size > maxFrame {
		in.opaque = true
		return true
	}
	if len(b) < 8 {
		return false
	}
	ex, special := c.specialHead(b)
	if special {
		return false
	}
	in.left = frameSize(b)
	in.cur = ex
	in.tee = ex != nil && c.net.wantsAnswer(ex.rec, in.left-8)
	if in.tee {
		in.copy = make([]byte, 0, min(in.left, 1<<20)) // the size is the broker's word
	}
	if ex != nil {
		c.forget(ex)
	}
	return true
}

// passedWhole ends the frame that was passing.
func (c *conn) passedWhole() {
	in := &c.in
	if in.cur != nil {
		var frame []byte
		if in.tee {
			frame = in.copy
		}
		c.net.answered(in.cur.rec, frame, true)
	}
	in.cur, in.copy, in.tee = nil, nil, false
}

// holdOver waits for the end of an exchange's hold, or for a change of the
// connection; it reports whether the hold is over.
func (c *conn) holdOver(ex *exchange) bool {
	if ex.hold == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ex.hold.start()
	if ex.hold.over() {
		return true
	}
	if c.ended == nil && !passed(c.readBy) {
		c.sleepLocked(ex.hold.release, ex.hold.until, c.readBy)
	}
	return false
}
