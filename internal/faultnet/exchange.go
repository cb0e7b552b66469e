package faultnet

import (
	"encoding/binary"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// exchange is a request that the client waits for, and what shall become of the
// answer.
type exchange struct {
	rec     *record // nil for the copy of a Duplicate
	corr    int32
	kind    exchangeKind
	hold    *hold // nil: not held
	hit     hit
	req     kmsg.Request // of exRewrite
	payload []byte       // frame that the client shall get, of exLocal and exReplace
}

type exchangeKind uint8

const (
	exPass    exchangeKind = iota // the broker's answer
	exLocal                       // payload; the broker never saw the request
	exReplace                     // payload, when the broker's answer has come
	exRewrite                     // the broker's answer, edited
	exDrop                        // nothing
	exCut                         // the end of the connection, when the answer has come
)

// expect enters an exchange behind those under way. One that needs no broker
// must be seen by a Read that waits for one.
func (c *conn) expect(ex *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(c.pending, ex)
	if ex.kind == exLocal {
		c.wakeLocked()
	}
}

func (c *conn) forget(ex *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.pending, ex); i >= 0 {
		c.pending = slices.Delete(c.pending, i, i+1)
	}
}

// localHead returns the oldest exchange if its answer is made here and its hold
// is over.
func (c *conn) localHead() *exchange {
	c.mu.Lock()
	var ex *exchange
	if len(c.pending) > 0 && c.pending[0].kind == exLocal {
		ex = c.pending[0]
	}
	c.mu.Unlock()
	if ex == nil || !c.holdOver(ex) {
		return nil
	}
	return ex
}

// specialHead returns the exchange that the frame at the front of b answers, nil
// if none is known, and whether the frame may not pass as it is; it is special
// and of no exchange when an answer made here must go before it. Nothing is
// known of a b shorter than a header.
func (c *conn) specialHead(b []byte) (ex *exchange, special bool) {
	if c.in.left > 0 || c.in.opaque || len(b) < 8 {
		return nil, false
	}
	corr := int32(binary.BigEndian.Uint32(b[4:]))
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.IndexFunc(c.pending, func(ex *exchange) bool {
		return ex.corr == corr && ex.kind != exLocal
	})
	if at < 0 {
		return nil, false
	}
	// A broker answers in order: what is before it gets no answer any more
	// (Produce with acks 0), but for the answers made here, which go first.
	local := slices.IndexFunc(c.pending[:at], func(ex *exchange) bool { return ex.kind == exLocal })
	if local >= 0 {
		c.pending = slices.Delete(c.pending, 0, local)
		return nil, true
	}
	c.pending = slices.Delete(c.pending, 0, at)
	ex = c.pending[0]
	return ex, ex.kind != exPass || ex.hold != nil
}

// serve ends an exchange: frame is the broker's answer, nil if there is none.
func (c *conn) serve(ex *exchange, frame []byte) {
	c.forget(ex)
	served := frame != nil
	switch ex.kind {
	case exPass:
		c.in.ready = frame
	case exLocal, exReplace:
		c.in.ready = ex.payload
	case exDrop:
		return
	case exCut:
		c.net.update(ex.rec, func(r *Request) { r.Served = true })
		c.cut()
		return
	case exRewrite:
		edited, err := c.net.rewriteAnswer(ex, frame)
		if err != nil {
			ex.hit.inj.fail(err)
			c.net.update(ex.rec, func(r *Request) { r.Served = true })
			c.cut()
			return
		}
		c.in.ready = edited
	}
	c.net.answered(ex.rec, c.in.ready, served)
}
