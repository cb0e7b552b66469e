package writer

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/transport"
)

const keyProduce = 0

// answered takes the end of a request. Requests end in any order; they are
// worked off in the order in which they were sent.
func (s *sink) answered(q *request, resp kmsg.Response, maybeSent bool, err error) {
	w := s.w
	w.mu.Lock()
	defer w.unlock()
	q.answered, q.maybeSent, q.err = true, maybeSent && q.encoded(), err
	if err == nil {
		var ok bool
		if q.resp, ok = resp.(*kmsg.ProduceResponse); !ok {
			q.maybeSent, q.err = true, fmt.Errorf("a Produce was answered by a %T", resp)
		}
	}
	if s.issuing == q {
		s.issuing = nil
	}
	for len(s.inflight) > 0 && s.inflight[0].answered {
		q := s.inflight[0]
		n := copy(s.inflight, s.inflight[1:])
		s.inflight[n] = nil
		s.inflight = s.inflight[:n]
		s.conclude(q)
	}
	s.pump()
}

// conclude works off one answer.
func (s *sink) conclude(q *request) {
	if q.resp != nil {
		q.match()
	}
	first := q.run.first == q
	if first {
		q.run.first = nil
	}
	for _, b := range q.batches {
		p := b.p
		p.inflight--
		if b.ghost {
			b.release()
			continue
		}
		b.decide(q)
		b.answer = nil
		p.settle()
		if p.sink != nil && p.sink != s {
			p.sink.pump()
		}
	}
	if first {
		s.w.pumpAll() // partitions that are new to the transaction may go
	}
}

// match gives each batch what the answer says of it.
func (q *request) match() {
	w := q.run.w
	for i := range q.resp.Topics {
		rt := &q.resp.Topics[i]
		t := w.topics[rt.Topic]
		if q.resp.Version >= 13 {
			t = q.topicByID(rt.TopicID)
		}
		if t == nil {
			continue
		}
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			if rp.Partition < 0 || int(rp.Partition) >= len(t.parts) {
				continue
			}
			p := t.parts[rp.Partition]
			if p == nil || p.run != q.run {
				continue
			}
			for _, b := range p.queue {
				if b.req == q && b.state == batchSent {
					b.answer = rp
				}
			}
		}
	}
}

func (q *request) topicByID(id [16]byte) *topic {
	for rest := q.batches; len(rest) > 0; rest = rest[sameTopic(rest):] {
		if rest[0].p.topicID == id {
			return rest[0].p.topic
		}
	}
	return nil
}

// decide says what becomes of a batch after the request that carried it ended.
func (b *batch) decide(q *request) {
	p := b.p
	switch {
	case q.err != nil:
		b.unsure = b.unsure || q.maybeSent
		b.lost(q.err)
	case b.answer == nil:
		b.unsure = true
		b.lost(errNoAnswer)
	case b.answer.ErrorCode == 0, b.answer.ErrorCode == kerr.DuplicateSequenceNumber.Code:
		b.ack()
	default:
		b.unsure = b.unsure || open(b.answer.ErrorCode)
		if log := p.run.w.log; log.Level() >= kgo.LogLevelDebug {
			log.Log(kgo.LogLevelDebug, "a batch was not accepted",
				"topic", p.topic.name, "partition", p.id, "broker", q.sink.node, "err", answerError(b.answer))
		}
		b.refused(q, b.answer.ErrorCode)
	}
}

var errNoAnswer = errors.New("the broker's answer says nothing of the partition")

// ack takes an acceptance. A duplicate is one too: the broker has the batch from
// an attempt whose answer was lost.
func (b *batch) ack() {
	p, r := b.p, b.p.run
	b.state = batchAcked
	b.base, b.appendTime = b.answer.BaseOffset, b.answer.LogAppendTime
	if b.answer.ErrorCode != 0 && b.base == 0 {
		b.base = -1 // not given
	}
	b.release()
	p.known, p.fails, p.unknown = true, 0, 0
	r.txn.Advance(p.topic.name, p.topicID, p.id, int32(b.n))
	if !r.wrote && b.base >= 0 {
		r.wrote = true
		r.txn.Wrote(p.topic.name, p.id, b.base)
	}
}

// lost has a batch sent again whose request got no answer.
func (b *batch) lost(err error) {
	switch {
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, kerr.UnsupportedVersion):
		b.fatal(err)
	case b.again(err):
		b.p.fails++
		b.p.holdForMetadata() // the broker may be gone
	}
}

// refused handles an answer with an error.
func (b *batch) refused(q *request, code int16) {
	p, w := b.p, b.p.run.w
	err := answerError(b.answer)
	switch class := transport.Classify(keyProduce, code); {
	case code == kerr.OutOfOrderSequenceNumber.Code && p.queue[0] != b:
		// One that belongs before it is unanswered, or has to be sent again:
		// it was overtaken. It goes again after that one, which is no fault
		// of its own.
		b.tries--
		b.again(err)
	case code == kerr.MessageTooLarge.Code, code == kerr.RecordListTooLarge.Code:
		b.tooLarge()
	case class == transport.ClassRetriable:
		if b.again(err) {
			p.fails++
			p.holdFor(w.retryAfter(p.fails, code))
		}
	case class == transport.ClassRefresh:
		leader := b.answer.CurrentLeader
		hinted := leader.LeaderID >= 0 && leader.LeaderID != q.sink.node
		if hinted {
			w.cluster.LeaderHint(p.topic.name, p.id, leader.LeaderID, leader.LeaderEpoch)
		}
		if !b.again(err) {
			return
		}
		if hinted {
			p.lead()
		}
		if p.sink == q.sink && !p.held {
			p.missed(err)
		}
	default:
		b.fatal(err)
	}
}

// again makes a batch ready to be sent once more, unless its run or its retries
// are at an end. It goes before all that is newer. If the partition
// is held back already it reports false: there is nothing more to do.
func (b *batch) again(err error) bool {
	p, r := b.p, b.p.run
	b.tries++
	if r.refusal() != nil {
		b.giveUp(err)
		return false
	}
	if int64(b.tries) > r.w.opts.RecordRetries {
		b.fatal(fmt.Errorf("%w: %w", kgo.ErrRecordRetries, err))
		return false
	}
	b.state, b.req = batchReady, nil
	if p.sink != nil {
		p.sink.activate(p)
	}
	return !p.held
}

// fatal ends the batch, and with it the run.
func (b *batch) fatal(err error) {
	err = b.p.errorf(err)
	b.fail(err, b.unsure)
	b.p.run.fail(err, b.unsure)
}

// giveUp ends a batch that cannot be sent again, because its run has ended.
func (b *batch) giveUp(err error) {
	if why := b.p.run.refusal(); why != nil {
		err = fmt.Errorf("%w: %w", why, err)
	}
	b.fail(err, b.unsure)
}

// tooLarge handles a batch that is too large for the broker: it goes again in
// halves, or, if it is one record, not at all.
func (b *batch) tooLarge() {
	p, w := b.p, b.p.run.w
	if b.n == 1 {
		b.fatal(&TooLargeError{Topic: p.topic.name, Size: clamp(headerLen + b.sent)})
		return
	}
	if p.run.refusal() != nil {
		b.giveUp(kerr.MessageTooLarge)
		return
	}
	for i := range p.queue {
		if p.queue[i] != b {
			continue
		}
		first, second := b.split()
		p.queue = append(p.queue[:i+1], p.queue[i:]...)
		p.queue[i], p.queue[i+1] = first, second
		w.finish(first)
		w.finish(second)
		break
	}
	if p.sink != nil {
		p.sink.activate(p)
	}
}

// answerError is the error of an answer, with what the broker says about it.
func answerError(a *kmsg.ProduceResponseTopicPartition) error {
	err := kerr.ErrorForCode(a.ErrorCode)
	if a.ErrorMessage != nil && *a.ErrorMessage != "" {
		err = fmt.Errorf("%w: %s", err, *a.ErrorMessage)
	}
	for i := range a.ErrorRecords {
		if m := a.ErrorRecords[i].ErrorMessage; m != nil {
			return fmt.Errorf("%w (record %d of the batch: %s)", err, a.ErrorRecords[i].RelativeOffset, *m)
		}
	}
	return err
}

// openCodes are the errors of the retry table with whether the batch may have
// been appended all the same, and that of all others.
var openCodes = sync.OnceValues(func() (codes map[int16]bool, rest bool) {
	codes = make(map[int16]bool)
	for _, row := range transport.Rows() {
		switch {
		case row.Key != keyProduce:
		case row.Rest:
			rest = row.Open
		default:
			codes[row.Code] = row.Open
		}
	}
	return codes, rest
})

func open(code int16) bool {
	codes, rest := openCodes()
	if open, listed := codes[code]; listed {
		return open
	}
	return rest
}

// retryAfter is how long to wait before a batch goes to the same broker again,
// after so many failures in a row.
func (w *Writer) retryAfter(fails int, code int16) time.Duration {
	var first, limit time.Duration
	switch code {
	case kerr.ConcurrentTransactions.Code:
		// Markers of the last transaction are being written.
		first, limit = 500*time.Microsecond, 20*time.Millisecond
	case kerr.NotEnoughReplicas.Code:
		// Also what a broker says while it registers a partition.
		first, limit = 5*time.Millisecond, w.backoff(fails)
	default:
		first, limit = 50*time.Millisecond, w.backoff(fails)
	}
	return min(first<<min(fails-1, 10), limit)
}
