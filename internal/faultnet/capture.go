package faultnet

import (
	"context"
	"time"
)

// record is one entry of the log. What begin sets does not change; the rest is
// guarded by the Net's mutex.
type record struct {
	Request
	flex bool // the request's header ends in tags
}

// begin logs a request and returns the faults that may meet it.
func (n *Net) begin(c *conn, h header, clientID string) (*record, []*Injection) {
	rec := &record{Request: Request{
		Conn: c.id, Addr: c.addr,
		Key: h.key, Version: h.version, CorrelationID: h.corr,
		ClientID: clientID, Size: h.size(), At: time.Now(),
	}}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq++
	rec.Seq = n.seq
	rec.Node = n.nodeLocked(c.addr)
	rec.make = n.requests[h.key]
	kind := [2]int16{h.key, h.version}
	flex, known := n.flex[kind]
	if !known {
		flex = rec.flexible()
		n.flex[kind] = flex
	}
	rec.flex = flex
	n.log = append(n.log, rec)
	n.counts[h.key]++
	n.changedLocked()
	return rec, n.candidatesLocked(h.key, c.addr, rec.Node)
}

// update changes a log entry.
func (n *Net) update(rec *record, change func(*Request)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&rec.Request)
	n.changedLocked()
}

func (n *Net) snapshot(rec *record) Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	return rec.Request
}

// delivered notes that the broker's connection has all of a request.
func (n *Net) delivered(rec *record) {
	if rec != nil {
		n.update(rec, func(r *Request) { r.Delivered = true })
	}
}

// keepBody notes the body of a request, which begins with the header's tags.
func (n *Net) keepBody(rec *record, body []byte) {
	if rec.flex {
		body = stripTags(body)
	}
	n.update(rec, func(r *Request) { r.Body = body })
}

// wantsAnswer tells whether the Net wants to see an answer of that many bytes.
func (n *Net) wantsAnswer(rec *record, size int) bool {
	return rec.Key == metadataKey || n.keeps(rec.Key, size)
}

// answered notes what the client is given: frame, if it was looked at. served
// tells that the broker answered.
func (n *Net) answered(rec *record, frame []byte, served bool) {
	var answer []byte
	if frame != nil {
		answer = frame[8:]
		if rec.flex && rec.Key != apiVersionsKey {
			answer = stripTags(answer)
		}
		if rec.Key == metadataKey && served {
			n.learn(rec.Version, answer)
		}
		if !n.keeps(rec.Key, len(frame)-8) {
			answer = nil
		}
	}
	now := time.Now()
	n.update(rec, func(r *Request) {
		r.Answered, r.AnsweredAt, r.Answer = true, now, answer
		r.Served = r.Served || served
	})
}

// keeps tells whether the log keeps a body of that many bytes.
func (n *Net) keeps(key int16, size int) bool {
	switch key {
	case produceKey, fetchKey, shareFetchKey:
		if !n.dataBody {
			return false
		}
	}
	return size <= n.bodyLimit
}

// Requests returns how many requests of a key the client has written since New
// or Reset, those a fault kept from the broker included. Key Any counts all.
func (n *Net) Requests(key int16) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if key == Any {
		return len(n.log)
	}
	return n.counts[key]
}

// Log returns the requests since New or Reset, in the order of their writing.
func (n *Net) Log() []Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.logLocked()
}

func (n *Net) logLocked() []Request {
	all := make([]Request, len(n.log))
	for i, rec := range n.log {
		all[i] = rec.Request
	}
	return all
}

// Wait waits until done agrees to the log. It is asked at once and again after
// each change to the log, one call at a time. Wait returns the cause of ctx's
// end if that comes first.
func (n *Net) Wait(ctx context.Context, done func(log []Request) bool) error {
	n.mu.Lock()
	n.waiters++
	defer func() {
		n.mu.Lock()
		n.waiters--
		n.mu.Unlock()
	}()
	for {
		log, changed := n.logLocked(), n.changed
		n.mu.Unlock()
		if done(log) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		n.mu.Lock()
	}
}

// WaitRequests waits until the client has written count requests of the key.
func (n *Net) WaitRequests(ctx context.Context, key int16, count int) error {
	return n.wait(ctx, func() bool {
		if key == Any {
			return len(n.log) >= count
		}
		return n.counts[key] >= count
	})
}

// wait waits for a condition that is asked under the mutex.
func (n *Net) wait(ctx context.Context, done func() bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiters++
	defer func() { n.waiters-- }()
	for !done() {
		changed := n.changed
		n.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		n.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// changedLocked wakes those who wait for a change.
func (n *Net) changedLocked() {
	if n.waiters > 0 {
		close(n.changed)
		n.changed = make(chan struct{})
	}
}

// Reset empties the log, removes all faults, and ends every Down and Blackhole.
// Connections stay open, registered types and known nodes stay known.
func (n *Net) Reset() {
	n.UpAll()
	n.HealAll()
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.injections) > 0 {
		n.injections[0].removeLocked()
	}
	n.log = nil
	clear(n.counts)
	n.changedLocked()
}
