package torture

import (
	"context"

	"github.com/ktxn/ktxn/txnsession"
)

// told notes what a call has said of t. Nothing it says later may contradict it.
func (w *worker) told(t *txn, v verdict) {
	if t.verdict != undecided && t.verdict != v {
		w.r.violatedf("session %d transaction %d: told that it is %s after it was %s", w.number, len(w.ledger.txns)-1, v, t.verdict)
	}
	t.verdict = v
}

// commit calls Commit until the outcome is known or nobody can tell it.
func (w *worker) commit(ctx context.Context, t *txn) {
	for ctx.Err() == nil {
		bounded, done := w.budget(ctx)
		err := w.s.Commit(bounded)
		done()
		switch {
		case err == nil:
			w.told(t, committed)
			return
		case txnsession.IsNotCommitted(err):
			t.refused = true
			w.told(t, aborted)
			return
		case txnsession.IsOutcomeUnknown(err):
			t.open = true
			w.r.count(func(p *Report) { p.Unknown++ })
			if w.look(ctx, t) {
				return
			}
		case txnsession.NeverSent(err):
			// Still open: on, or not.
			if w.s.State() == txnsession.StateInTransaction && w.rng.IntN(4) == 0 {
				w.abort(ctx, t)
				return
			}
		default:
			w.r.violatedf("session %d: Commit does not say what is known: %v", w.number, err)
			return
		}
		w.rest(ctx)
	}
}

// abort calls Abort once: whatever it answers, nothing will be visible. What is
// left to be done ready does.
func (w *worker) abort(ctx context.Context, t *txn) {
	bounded, done := w.budget(ctx)
	defer done()
	if err := w.s.Abort(bounded); err != nil && !txnsession.IsNotCommitted(err) {
		w.r.violatedf("session %d: Abort leaves open whether it is committed: %v", w.number, err)
	}
	w.told(t, aborted)
}

// prepare has a committer elsewhere end the transaction, and calls the same end
// afterwards.
func (w *worker) prepare(ctx context.Context, t *txn) {
	bounded, done := context.WithTimeout(ctx, callTime)
	stored, err := w.s.Prepare(bounded)
	done()
	if err != nil {
		if w.s.State() == txnsession.StateInTransaction {
			w.abort(ctx, t)
		}
		t.refused = true
		w.told(t, aborted)
		return
	}
	w.r.count(func(p *Report) { p.Prepared++ })
	c, err := txnsession.ResumePrepared(w.elsewhere, stored)
	if err != nil {
		w.r.violatedf("session %d: ResumePrepared: %v", w.number, err)
		return
	}
	bounded, done = w.budget(ctx)
	err = c.Commit(bounded)
	done()
	switch {
	case err == nil:
		w.told(t, committed)
	case txnsession.IsNotCommitted(err):
		t.refused = true
		w.told(t, aborted)
	default:
		t.open = true
		w.r.count(func(p *Report) { p.Unknown++ })
	}
	_ = c.Close(ctx)
	w.commit(ctx, t)
}

// look has a look at an unresolved commit in one way or another. done is true if
// the session is through with it.
func (w *worker) look(ctx context.Context, t *txn) (done bool) {
	if w.s.State() == txnsession.StateFatalError {
		w.ask(ctx, t)
		return true
	}
	switch w.rng.IntN(4) {
	case 0:
		w.ask(ctx, t)
	case 1:
		bounded, cancel := w.budget(ctx)
		err := w.s.Initialize(bounded)
		cancel()
		for err != nil && w.s.State() == txnsession.StateUninitialized && ctx.Err() == nil {
			w.rest(ctx)
			again, cancel := context.WithTimeout(ctx, callTime)
			err = w.s.Initialize(again)
			cancel()
		}
		if w.s.State() == txnsession.StateCommitting {
			return false
		}
		w.ask(ctx, t)
		return true
	}
	return false
}

// ask asks for the outcome until there is an answer.
func (w *worker) ask(ctx context.Context, t *txn) {
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, callTime)
		out, err := w.s.Outcome(bounded)
		cancel()
		if err != nil {
			w.rest(ctx)
			continue
		}
		switch out.Verdict {
		case txnsession.Committed:
			w.told(t, committed)
		case txnsession.Aborted, txnsession.Nothing:
			w.told(t, aborted)
		}
		return
	}
}
