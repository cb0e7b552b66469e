package faultnet

import (
	"bytes"
	"encoding/binary"
	"io"
	"time"
)

// maxQueued bounds what a connection takes while nothing moves, like the socket
// buffers of a real one. Beyond it Write blocks.
const maxQueued = 4 << 20

// outItem is a piece of the client's stream that waits for its turn.
type outItem struct {
	b    []byte
	rec  *record // of the frame that ends with b
	hold *hold
	late bool // the connection exists only for this frame, and ends with its answer
}

func (c *conn) enqueue(it outItem) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.enqueueLocked(it)
}

// enqueueLocked puts a piece behind what is held. It blocks while the queue is
// full, up to the write deadline.
func (c *conn) enqueueLocked(it outItem) error {
	for {
		if err := c.writableLocked(); err != nil {
			return err
		}
		if c.queued == 0 || c.queued+len(it.b) <= maxQueued {
			break
		}
		c.sleepLocked(nil, c.writeBy)
	}
	c.pushLocked(it)
	return nil
}

func (c *conn) pushLocked(it outItem) {
	if it.hold != nil {
		it.hold.start()
	}
	c.queue = append(c.queue, it)
	c.queued += len(it.b)
	if c.pumping != nil {
		return
	}
	c.pumping = make(chan struct{})
	_ = c.inner.SetWriteDeadline(time.Time{}) // what was taken is not the client's to interrupt
	c.net.running.Go(c.pump)
}

// goAstray ends the connection for the client and leaves its other side to a
// frame that arrives later.
func (c *conn) goAstray(frame []byte, rec *record, h *hold) {
	c.net.leave(c, true)
	c.mu.Lock()
	if c.ended != nil {
		c.mu.Unlock()
		c.net.leave(c, false)
		return
	}
	c.ended = io.EOF
	c.stray = true
	c.wakeLocked()
	c.pushLocked(outItem{b: bytes.Clone(frame), rec: rec, hold: h, late: true})
	c.mu.Unlock()
}

// pump moves the queue to the broker until it is empty or the connection ends.
func (c *conn) pump() {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		close(c.pumping)
		c.pumping = nil
	}()
	for len(c.queue) > 0 {
		it := c.queue[0]
		switch {
		case it.hold != nil && !it.hold.over():
			c.sleepLocked(it.hold.release, it.hold.until)
			continue
		case c.stalled:
			c.sleepLocked(nil)
			continue
		}
		c.mu.Unlock()
		_, err := c.inner.Write(it.b)
		if err == nil {
			c.net.delivered(it.rec)
		}
		if err == nil && it.late {
			err = c.drain(it.rec)
		}
		if err != nil || it.late {
			c.sever()
		}
		c.mu.Lock()
		if len(c.queue) > 0 { // not dropped meanwhile
			c.queue = c.queue[1:]
			c.queued -= len(it.b)
			c.notifyLocked()
		}
	}
	if c.ended == nil {
		_ = c.inner.SetWriteDeadline(c.writeBy)
	}
}

// drain reads a stray connection up to the answer to its late request.
func (c *conn) drain(rec *record) error {
	c.rmu.Lock() // the client's Read has been woken and finds the connection ended
	defer c.rmu.Unlock()
	c.mu.Lock()
	_ = c.inner.SetReadDeadline(time.Time{})
	c.mu.Unlock()
	r := io.MultiReader(bytes.NewReader(c.in.raw), c.inner)
	if _, err := io.CopyN(io.Discard, r, int64(c.in.left)); err != nil {
		return err
	}
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		size := int32(binary.BigEndian.Uint32(head[:]))
		if size < 4 || size > maxFrame {
			return io.ErrUnexpectedEOF
		}
		if _, err := io.CopyN(io.Discard, r, int64(size)-4); err != nil {
			return err
		}
		if int32(binary.BigEndian.Uint32(head[4:])) == rec.CorrelationID {
			c.net.update(rec, func(r *Request) { r.Served = true })
			return nil
		}
	}
}
