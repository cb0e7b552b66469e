package writer

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/txnsession"
)

// outcome is what is owed for some records: their promises, and what the
// session must be told before them.
type outcome struct {
	run  *run // nil: the records never joined a transaction
	recs []rec
	one  [1]rec // room for recs of a single record

	err       error // nil: acknowledged
	maybeSent bool
	fail      bool // err fails the transaction

	base       int64 // offset of the first record, -1: unknown
	appendTime int64 // -1: the records keep their own time
	attrs      kgo.RecordAttrs
	batch      *written // for the batch hook
}

// written is what HookProduceBatchWritten is told.
type written struct {
	node      int32
	topic     string
	partition int32
	metrics   kgo.ProduceBatchMetrics
}

// push queues an outcome. mu is held; the order of calls is the order of the
// promises.
func (w *Writer) push(o *outcome) {
	w.outcomes = append(w.outcomes, o)
	if !w.delivering {
		w.delivering = true
		go w.deliver()
	}
}

// refuse queues the failure of a record that never took space. mu is held.
func (w *Writer) refuse(r *run, rc rec, err error) {
	o := &outcome{run: r, err: err, base: -1, appendTime: -1}
	o.one[0] = rc
	o.recs = o.one[:]
	w.space.backlog++
	w.push(o)
}

// deliver runs promises, one at a time, until there are none. It is the only
// goroutine that does so.
func (w *Writer) deliver() {
	var queue []*outcome
	w.mu.Lock()
	for {
		queue, w.outcomes = w.outcomes, queue[:0]
		if len(queue) == 0 {
			w.delivering = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		for i, o := range queue {
			w.deliverOne(o)
			queue[i] = nil
		}
		w.mu.Lock()
	}
}

func (w *Writer) deliverOne(o *outcome) {
	if o.fail {
		o.run.txn.Fail(w.failure(o.err, o.maybeSent))
	}
	if o.batch != nil {
		w.hooks.batchWritten(o.batch)
	}
	err := o.err
	if err != nil && len(o.recs) > 0 {
		err = w.failure(err, o.maybeSent)
	}
	for i := range o.recs {
		o.fill(i)
		rc := &o.recs[i]
		w.hooks.unbuffered(rc.r, err)
		w.turn.Add(1)
		rc.promise(rc.r, err)
	}
	w.delivered(o)
}

// fill sets what a record is told about itself: what it was written as, or that
// it was not.
func (o *outcome) fill(i int) {
	r := o.recs[i].r
	r.LeaderEpoch = -1 // brokers do not answer with it
	if o.err != nil {
		r.Offset, r.ProducerID, r.ProducerEpoch = -1, -1, -1
		return
	}
	r.Offset = -1
	if o.base >= 0 {
		r.Offset = o.base + int64(i)
	}
	if o.appendTime >= 0 {
		r.Timestamp = time.UnixMilli(o.appendTime)
	}
	r.ProducerID, r.ProducerEpoch, r.Attrs = o.run.id, o.run.epoch, o.attrs
}

// delivered counts the records of o out.
func (w *Writer) delivered(o *outcome) {
	for i := 0; i < len(o.recs); {
		src, n, bytes := o.recs[i].src, int64(0), int64(0)
		for ; i < len(o.recs) && o.recs[i].src == src; i++ {
			n++
			bytes += o.recs[i].size
		}
		src.records.Add(-n)
		src.bytes.Add(-bytes)
	}
	n := int64(len(o.recs))
	records.put(o.recs)
	w.mu.Lock()
	w.space.backlog -= n
	w.open -= n
	if o.run != nil {
		o.run.open -= n
	}
	w.admit()
	if w.relieved != nil && !w.backlogged() {
		close(w.relieved)
		w.relieved = nil
	}
	w.wakeFlushers()
	w.unlock()
	for _, done := range w.synced {
		close(done)
	}
	w.synced = w.synced[:0]
}

// failure is the error that users see.
func (w *Writer) failure(err error, maybeSent bool) error {
	var e *txnsession.Error
	if !maybeSent && errors.As(err, &e) {
		return err // the session's own knows more
	}
	return &txnsession.Error{Op: "produce", State: w.session.State(), MaybeSent: maybeSent, Err: err}
}

// flusher is a call that waits until nothing is owed any more.
type flusher struct {
	run  *run // nil: of the whole writer
	src  *Source
	done chan struct{}
}

func (f *flusher) satisfied(w *Writer) bool {
	switch {
	case f.run != nil:
		return f.run.open == 0
	case f.src != nil:
		return f.src.records.Load() == 0
	}
	return w.open == 0
}

// wakeFlushers lets go those that have nothing to wait for any more. mu is held.
func (w *Writer) wakeFlushers() {
	kept := w.flushers[:0]
	for _, f := range w.flushers {
		if f.satisfied(w) {
			close(f.done)
			continue
		}
		kept = append(kept, f)
	}
	clear(w.flushers[len(kept):])
	w.flushers = kept
}

// awaitPromises waits until what f waits for has no promise left to run, or
// ctx has ended. mu is not held.
func (w *Writer) awaitPromises(ctx context.Context, f *flusher) error {
	f.done = make(chan struct{})
	w.mu.Lock()
	w.flushers = append(w.flushers, f)
	w.wakeFlushers()
	w.unlock()
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.unlock()
	for i := range w.flushers {
		if w.flushers[i] == f {
			w.flushers = append(w.flushers[:i], w.flushers[i+1:]...)
			return contextError(ctx)
		}
	}
	return nil // let go at the same moment
}

// relief waits, after a refusal, while too many promises are to be run: a loop
// of failing Produce would outrun them without end. mu is held, and let go of.
func (w *Writer) relief(ctx context.Context) {
	if !w.backlogged() {
		w.unlock()
		return
	}
	if w.relieved == nil {
		w.relieved = make(chan struct{})
	}
	relieved, turn := w.relieved, w.turn.Load()
	w.unlock()
	grace := time.NewTimer(promiseGrace)
	defer grace.Stop()
	for {
		select {
		case <-relieved:
			return
		case <-ctx.Done():
			return
		case <-grace.C:
		}
		w.mu.Lock()
		own := w.delivering && turn == w.turn.Load() // it may be that promise's own
		w.unlock()
		if own {
			return
		}
		grace.Reset(promiseGrace)
	}
}
