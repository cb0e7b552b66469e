package writer

import (
	"cmp"
	"slices"
	"time"
)

// sink sends to one broker. Writer.mu guards it.
//
// The next request is handed to the lane only once the one before has been
// encoded, which keeps them in order on the connection, and at most
// Options.MaxInflight are unanswered.
type sink struct {
	w        *Writer
	node     int32
	active   []*partition // that may have something to send
	inflight []*request   // oldest first
	issuing  *request     // handed over, not encoded yet
}

// requestCap bounds a request. Larger ones gained nothing.
const requestCap = 3 << 20

// activate has s look at p, whose leader it is. The list may come to name p
// twice when leaders move to and fro.
func (s *sink) activate(p *partition) {
	if p.active != s {
		p.active = s
		s.active = append(s.active, p)
	}
}

func (w *Writer) sinkOf(node int32) *sink {
	s := w.sinks[node]
	if s == nil {
		s = &sink{w: w, node: node}
		w.sinks[node] = s
	}
	return s
}

// pumpAll lets every broker send what it may.
func (w *Writer) pumpAll() {
	for _, s := range w.sinks {
		s.pump()
	}
}

// pump sends the next request, if there is something to send and it is its
// time. mu is held; the request leaves when it is let go of.
func (s *sink) pump() {
	w := s.w
	if s.issuing != nil || len(s.inflight) >= w.opts.MaxInflight || len(s.active) == 0 || w.muted() {
		return
	}
	s.closeDue()
	q := s.build()
	if q == nil {
		return
	}
	s.issuing = q
	s.inflight = append(s.inflight, q)
	w.outbox = append(w.outbox, q)
}

// muted reports whether nothing may be sent: the user flushes by hand and does
// not, or the session is done for. A fenced session sends nothing more.
func (w *Writer) muted() bool {
	if w.opts.ManualFlushing && w.flushing == 0 && w.urgent == 0 {
		return true
	}
	r := w.run
	if r == nil {
		return false
	}
	select {
	case <-r.ending:
		r.checkSession()
	default:
	}
	return false
}

// closeDue closes open batches whose time has come although they are not full.
// Without a linger that is when nothing at all is under way to the broker: what
// comes while a request is would go in many small ones else.
func (s *sink) closeDue() {
	w := s.w
	now := w.flushing > 0 || w.urgent > 0 || w.opts.Linger > 0 && w.blocked > 0
	switch {
	case now:
	case w.opts.Linger > 0:
		at := time.Now()
		for _, p := range s.active {
			if b := p.next(); b != nil && b.state == batchOpen && p.sendable(s) && b.lingered(w, at) {
				p.close(b)
			}
		}
		return
	case len(s.inflight) > 0:
		return
	default:
		for _, p := range s.active {
			if b := p.next(); b != nil && b.state != batchOpen && p.sendable(s) {
				return // there is something to send before
			}
		}
	}
	for _, p := range s.active {
		if b := p.next(); b != nil && b.state == batchOpen && p.sendable(s) {
			p.close(b)
		}
	}
}

// build makes a request of what is ready, nil if nothing is.
func (s *sink) build() *request {
	w := s.w
	var q *request
	var last *run
	waiting := s.active[:0]
	var served []*partition
	for _, p := range s.active {
		if !p.pending() || p.sink != s || q != nil && p.last == q {
			if p.active == s && (q == nil || p.last != q) {
				p.active = nil
			}
			continue
		}
		b := p.next()
		if b == nil || b.state != batchReady || !p.sendable(s) || last != nil && p.run != last ||
			!p.known && p.run.rules2 && p.run.first != nil && p.run.first != q ||
			q != nil && q.size+b.size()+perPartition+len(p.topic.name) > w.requestCap {
			waiting = append(waiting, p)
			continue
		}
		if q == nil {
			q = &request{run: p.run, sink: s, timeout: int32(w.opts.RequestTimeout.Milliseconds())}
			last = p.run
		}
		if !p.known && p.run.rules2 {
			p.run.first = q
		}
		q.add(p, b)
		served = append(served, p)
	}
	s.active = waiting
	s.active = append(s.active, served...) // who was served goes to the end
	if q != nil {
		q.seal()
	}
	return q
}

// add puts b into the request.
func (q *request) add(p *partition, b *batch) {
	b.state, b.req = batchSent, q
	b.sent = len(b.buf)
	p.inflight++
	p.sentTo, p.last = q.sink, q
	q.batches = append(q.batches, b)
	q.size += b.size() + perPartition + len(p.topic.name)
}

// seal fixes what the request says.
func (q *request) seal() {
	slices.SortStableFunc(q.batches, func(a, b *batch) int { return cmp.Compare(a.p.topic.order, b.p.topic.order) })
	q.max = 11
	if q.run.rules2 {
		q.max = 13
	}
	for rest := q.batches; len(rest) > 0; rest = rest[sameTopic(rest):] {
		q.topics++
		if q.run.rules2 && rest[0].p.topicID == ([16]byte{}) {
			q.max = 12
		}
	}
}

// encoded is called once the lane has encoded q: the next may follow.
func (s *sink) encoded(q *request) {
	s.w.mu.Lock()
	defer s.w.unlock()
	if s.issuing == q {
		s.issuing = nil
		s.pump()
	}
}
