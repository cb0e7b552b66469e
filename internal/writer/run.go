package writer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/txnsession"
)

// run is the writer's part in one transaction: the session's participant. Its
// identity never changes. A new one is made for each transaction, so that what
// comes late for an old one cannot touch the next.
type run struct {
	w *Writer

	// Set when it has joined.
	txn    txn
	id     int64
	epoch  int16
	rules2 bool // KIP-890: Produce registers partitions itself
	ending <-chan struct{}

	ctx    context.Context // of background work; ends with the run
	cancel context.CancelFunc
	mute   atomic.Bool // requests that are not encoded yet must say nothing
	over   atomic.Bool // nor those that are encoded once more

	// Writer.mu guards the rest.
	parts    []*partition
	open     int64    // records whose promise has not returned
	first    *request // in flight with partitions that are new to the transaction
	wrote    bool
	err      error // why the run has failed
	dropping bool  // is being aborted
	settled  bool  // has ended
	gone     bool  // some batch was given up without an answer
}

func newRun(w *Writer) *run {
	r := &run{w: w}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// join counts a record into the run of the open transaction, or says why there
// is none. It is called with mu held and returns with it held, but lets go of
// it to ask the session.
func (w *Writer) join(ctx context.Context) (*run, error) {
	if r := w.run; r != nil {
		select {
		case <-r.ending:
		default:
			r.open++
			return r, nil
		}
	}
	w.unlock()
	r, err := w.enlist(ctx)
	w.mu.Lock()
	if err == nil && r.settled {
		err = errEnded
		r.open--
	}
	return r, err
}

var errEnded = fmt.Errorf("the transaction has ended: %w", txnsession.ErrState)

// enlist asks the session whether ctx may still work in the transaction that is
// open, and joins it. The record is counted before the session is asked: a Flush
// that comes after the answer waits for it.
func (w *Writer) enlist(ctx context.Context) (*run, error) {
	w.enlisting.Lock()
	defer w.enlisting.Unlock()
	for {
		w.mu.Lock()
		r := w.run
		if r == nil {
			r = newRun(w)
		}
		r.open++
		w.mu.Unlock()

		t, err := w.session.Enlist(ctx, r)

		w.mu.Lock()
		switch {
		case err == nil && r.txn == nil:
			r.txn, r.ending = t, t.Ending()
			r.id, r.epoch, r.rules2 = t.ProducerID(), t.ProducerEpoch(), t.TransactionVersion() >= 2
			if !r.settled {
				w.run = r
			}
		case err == nil && r.txn != t:
			// r has ended meanwhile, and t is the next transaction. r is in
			// it too now, without work.
			r.open--
			w.mu.Unlock()
			continue
		case err != nil:
			r.open--
			w.wakeFlushers()
		}
		w.mu.Unlock()
		return r, err
	}
}

// checkSession gives the run up if the session is done for: its end was not
// asked for, and nothing may be sent any more. mu is held.
func (r *run) checkSession() {
	switch r.w.session.State() {
	case txnsession.StateFatalError, txnsession.StateClosed:
		err := r.w.session.Err()
		if err == nil {
			err = txnsession.ErrClosed
		}
		r.fail(fmt.Errorf("the session is done for: %w", err), false)
	}
}

// refusal is why the run takes no more records, or nil. mu is held.
func (r *run) refusal() error {
	switch {
	case r.err != nil:
		return r.err
	case r.dropping:
		return kgo.ErrAborting
	case r.settled:
		return errEnded
	}
	return nil
}

// fail makes the transaction abortable because of err, which a record of it
// met, and drops all that is not in flight. The session hears of it before any
// promise that tells of it. mu is held.
func (r *run) fail(err error, maybeSent bool) {
	if r.err != nil || r.dropping || r.settled {
		r.gone = r.gone || maybeSent
		return
	}
	r.err = err
	r.w.push(&outcome{run: r, err: err, maybeSent: maybeSent, fail: true})
	r.drop(fmt.Errorf("dropped, because the transaction has failed: %w", err))
}

// drop gives up what is not in flight. mu is held.
func (r *run) drop(err error) {
	w := r.w
	r.mute.Store(true)
	r.cancel()
	for _, p := range r.parts {
		p.drop(err)
	}
	for _, t := range w.topics {
		if t.waitingFor == r {
			w.dropWaiting(t, err)
		}
	}
	w.refuseWaiters(r, err)
}

// abandon runs the promises of what is in flight without waiting for answers,
// as their errors say where it may have been sent. mu is held.
func (r *run) abandon(err error) {
	for _, p := range r.parts {
		p.abandon(err)
	}
}

// Flush sends what is buffered and waits until all of it is answered and its
// promises have returned. It is the session's call before a commit.
func (r *run) Flush(ctx context.Context) error {
	w := r.w
	err := w.flush(ctx, &flusher{run: r})
	w.mu.Lock()
	defer w.unlock()
	if r.err != nil {
		return w.failure(r.err, r.gone)
	}
	if err == nil {
		r.checkTopics()
		if r.err != nil {
			return w.failure(r.err, false)
		}
	}
	return err
}

// Discard drops what is unsent and waits for the answers to what is in flight
// and for all promises. It is the session's call before an abort. If ctx ends
// the wait the transaction is told that a Produce may still arrive.
func (r *run) Discard(ctx context.Context) error {
	w := r.w
	w.mu.Lock()
	if !r.dropping {
		r.dropping = true
		r.drop(kgo.ErrAborting)
	}
	w.unlock()
	err := w.awaitPromises(ctx, &flusher{run: r})

	w.mu.Lock()
	flying := false
	for _, p := range r.parts {
		flying = flying || p.inflight > 0 && p.encoded()
	}
	gone := r.gone || flying
	w.unlock()
	if gone {
		r.txn.Fail(w.failure(errors.Join(errUnanswered, err), true))
	}
	return err
}

var errUnanswered = errors.New("a Produce that may have been sent has no answer")

// Settle ends the run. What a session that was closed in a hurry has left is
// given up.
func (r *run) Settle(txnsession.Verdict) {
	w := r.w
	w.mu.Lock()
	defer w.unlock()
	if r.settled {
		return
	}
	if !r.dropping {
		r.dropping = true
		r.drop(kgo.ErrAborting)
	}
	r.abandon(errors.Join(kgo.ErrAborting, errUnanswered))
	r.settled = true
	r.over.Store(true)
	if w.run == r {
		w.run = nil
	}
}
