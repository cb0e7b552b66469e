package faultnet

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// judge lets the faults decide over a whole request frame. frame may be the
// client's memory.
func (c *conn) judge(frame []byte) error {
	o := &c.out
	req := c.net.snapshot(o.rec)
	req.Body = frame[o.h.body:]
	if o.rec.flex {
		req.Body = stripTags(req.Body)
	}
	if o.keep {
		c.net.keepBody(o.rec, bytes.Clone(frame[o.h.body:]))
	}
	ex := &exchange{rec: o.rec, corr: o.h.corr}
	h, met := c.net.pick(o.cands, req)
	if !met {
		c.expect(ex)
		_, err := c.send(frame, o.rec)
		return err
	}
	c.net.update(o.rec, func(r *Request) { r.Action = h.Action })
	return c.act(h, ex, req, frame)
}

// act does to the request what the fault says.
func (c *conn) act(h hit, ex *exchange, req Request, frame []byte) error {
	rec := ex.rec
	ex.hold = h.hold
	ex.hit = h
	switch h.Action {
	case Refuse:
		c.net.oweDial(h.inj, c.addr)
		c.cut()
		return c.opError("write", errReset)
	case CutBefore:
		c.cut()
		return errSwallowed
	case CutLate:
		c.goAstray(frame, rec, h.hold)
		return errSwallowed
	case DelayRequest:
		ex.hold = nil // the request is held, not the answer
		c.expect(ex)
		return c.enqueue(outItem{b: bytes.Clone(frame), rec: rec, hold: h.hold})
	case Answer, AnswerAfter:
		if h.Action == Answer && wantsNoAnswer(req) {
			return nil
		}
		payload, err := c.net.buildAnswer(req, h.Fault)
		if err != nil {
			h.inj.fail(err)
			c.cut()
			return errSwallowed
		}
		ex.kind, ex.payload = exReplace, payload
		if h.Action == Answer {
			ex.kind = exLocal
			c.expect(ex)
			return nil
		}
	case CutAfter:
		ex.kind = exCut
	case Rewrite:
		req.Body = bytes.Clone(req.Body) // the client reuses it before the answer comes
		kreq, err := req.Decode()
		if err != nil {
			h.inj.fail(err)
			c.cut()
			return errSwallowed
		}
		ex.kind, ex.req = exRewrite, kreq
	case Duplicate:
		c.expect(ex)
		c.expect(&exchange{corr: ex.corr, kind: exDrop})
		if _, err := c.send(frame, nil); err != nil {
			return err
		}
		_, err := c.send(frame, rec)
		return err
	}
	silent := wantsNoAnswer(req)
	c.expect(ex)
	_, err := c.send(frame, rec)
	if err == nil && silent && h.Action == CutAfter {
		c.cut()
		return errSwallowed
	}
	return err
}

// wantsNoAnswer tells a Produce with acks 0.
func wantsNoAnswer(req Request) bool {
	if req.Key != produceKey {
		return false
	}
	r, err := req.Decode()
	if err != nil {
		return false
	}
	p, ok := r.(*kmsg.ProduceRequest)
	return ok && p.Acks == 0
}
