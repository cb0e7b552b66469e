package writer

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type ownership uint8

const (
	unowned ownership = iota
	owning
	owned
)

// partition is one partition in one transaction. Writer.mu guards it.
type partition struct {
	run   *run
	topic *topic
	id    int32

	queue    []*batch // oldest first; the last may be open
	records  int64    // in queue, for partitioners
	inflight int      // requests that carry a batch of it
	sentTo   *sink    // where those are
	sink     *sink    // of its leader; nil: unknown
	active   *sink    // whose list has it
	last     *request // that carries a batch of it

	own     ownership
	topicID [16]byte // as owned
	seq     int32    // of the next batch that is closed

	known   bool // some batch was accepted: coordinator and leader know of it
	held    bool // waits for a back-off or for metadata
	fails   int  // in a row
	unknown int64
}

// open returns the batch that takes records, or nil.
func (p *partition) open() *batch {
	if n := len(p.queue); n > 0 && p.queue[n-1].state == batchOpen {
		return p.queue[n-1]
	}
	return nil
}

// start makes a new open batch.
func (p *partition) start() *batch {
	b := &batch{p: p, born: time.Now(), base: -1, appendTime: -1}
	p.queue = append(p.queue, b)
	if p.sink != nil {
		p.sink.activate(p)
	}
	return b
}

// next returns the batch to be sent or closed next, or nil. It is the oldest
// that is not in a request, unless that is too far from the oldest undecided
// one: the leader must still remember that one when the answer is lost and it
// has to be sent again.
func (p *partition) next() *batch {
	for _, b := range p.queue[:min(len(p.queue), MaxInflight)] {
		if b.state < batchSent {
			return b
		}
	}
	return nil
}

// pending reports whether it has anything that is not in a request.
func (p *partition) pending() bool {
	for _, b := range p.queue {
		if b.state < batchSent {
			return true
		}
	}
	return false
}

// sendable reports whether s may send for it now, if it has something.
//
// Until a batch of the transaction was accepted there is only one in flight: a
// leader that has no record of the producer takes any sequence number for the
// first, and would refuse the batch that belongs before it. Nor does anything go
// to another broker before all that is in flight is answered: it would be refused
// as out of order, again and again.
func (p *partition) sendable(s *sink) bool {
	switch {
	case p.held, p.own != owned, p.sink != s:
		return false
	case p.inflight == 0:
		return true
	}
	return p.known && p.sentTo == s
}

// close ends the open batch b, so that it can be sent.
func (p *partition) close(b *batch) {
	b.state = batchClosed
	b.n, b.raw = len(b.recs), len(b.buf)
	if p.own == owned {
		p.number(b)
	}
	p.run.w.finish(b)
}

func (p *partition) number(b *batch) {
	b.seq, b.sequenced = p.seq, true
	p.seq = addSequence(p.seq, b.n)
}

// drop fails what is not in a request, or in one that is not encoded yet and
// will say nothing. mu is held.
func (p *partition) drop(err error) {
	for _, b := range p.queue {
		switch {
		case b.state < batchSent:
			b.fail(err, b.unsure)
		case b.state == batchSent && b.req.silence():
			b.forsake(err, b.unsure)
		}
	}
	p.settle()
}

// fail ends b without success.
func (b *batch) fail(err error, maybeSent bool) {
	b.state, b.err, b.maybeSent = batchFailed, err, maybeSent
	b.p.run.gone = b.p.run.gone || maybeSent
	if !b.busy {
		b.release()
	}
}

// forsake ends b without success while it is in a request, which keeps its bytes.
func (b *batch) forsake(err error, maybeSent bool) {
	b.state, b.ghost, b.err, b.maybeSent = batchFailed, true, err, maybeSent
	b.p.run.gone = b.p.run.gone || maybeSent
}

// abandon runs the promises of what is in requests without waiting any longer.
func (p *partition) abandon(err error) {
	for _, b := range p.queue {
		if b.state == batchSent {
			b.forsake(err, b.unsure || !b.req.silence())
		}
	}
	p.settle()
}

// encoded reports whether a request that may have been written carries a batch
// of it.
func (p *partition) encoded() bool {
	if p.sentTo == nil {
		return false
	}
	for _, q := range p.sentTo.inflight {
		if q.run != p.run || !q.encoded() {
			continue
		}
		for _, b := range q.batches {
			if b.p == p {
				return true
			}
		}
	}
	return false
}

// settle hands the promises of the oldest batches over, as far as they are
// decided.
func (p *partition) settle() {
	w := p.run.w
	n := 0
	for ; n < len(p.queue) && p.queue[n].state.done(); n++ {
		b := p.queue[n]
		p.records -= int64(len(b.recs))
		w.free(b.recs)
		w.push(b.outcome())
		b.recs = nil
	}
	if n > 0 {
		left := copy(p.queue, p.queue[n:])
		clear(p.queue[left:])
		p.queue = p.queue[:left]
	}
}

// outcome is what is owed for a batch that is decided.
func (b *batch) outcome() *outcome {
	o := &outcome{
		run: b.p.run, recs: b.recs, err: b.err, maybeSent: b.maybeSent,
		base: b.base, appendTime: b.appendTime,
	}
	if b.state == batchAcked {
		o.attrs = b.attrs() // of one that was given up a worker may be changing the codec
	}
	if b.state == batchAcked && len(b.p.run.w.hooks.onWritten) > 0 {
		o.batch = &written{
			node: b.req.sink.node, topic: b.p.topic.name, partition: b.p.id,
			metrics: kgo.ProduceBatchMetrics{
				NumRecords: b.n, UncompressedBytes: b.raw,
				CompressedBytes: b.sent, CompressionType: uint8(b.codec),
			},
		}
	}
	return o
}
