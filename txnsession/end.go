package txnsession

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/statemachine"
	"github.com/ktxn/ktxn/internal/transport"
)

// HookTxnEnd is called when it is decided, or given up, how a transaction has
// ended. It is registered like [HookStateChange] and must be fast.
type HookTxnEnd interface {
	// OnTxnEnd gets the verdict, the time since Begin (or Resume), and the
	// error that the call which ended it returns, if any.
	OnTxnEnd(transactionalID string, v Verdict, age time.Duration, err error)
}

// Commit commits the transaction: it flushes the participants, sends EndTxn
// and waits for the coordinator's answer, which comes when the commit is
// durable. Legal in StateInTransaction, StatePrepared and, to resolve an
// earlier Commit, StateCommitting.
//
//   - nil: committed. The next Begin may follow.
//   - [IsNotCommitted]: certain and final. The session is in
//     StateAbortableError (Abort, then Begin, or one Initialize, get it going
//     again) or, fenced, in StateFatalError.
//   - [NeverSent]: ctx ended while the participants flushed or before the
//     request left; still StateInTransaction. Call Commit again, or Abort. No
//     more work is taken.
//   - [IsOutcomeUnknown], every other error: the session stays in
//     StateCommitting. Call Commit again (the request is idempotent), or
//     Outcome. Abort and Begin are refused.
//
// A Commit beside a running one joins it; an Abort beside it is refused. ctx
// bounds the wait and the retries, not the transaction. A transaction without
// any work is committed without a request.
func (s *Session) Commit(ctx context.Context) error {
	return s.end(ctx, "commit", statemachine.CallCommit, true)
}

// Abort aborts the transaction: the participants drop what is unsent and await
// what is in flight, then EndTxn is sent. Legal in StateInTransaction,
// StatePrepared, StateAbortableError and, to resolve an earlier Abort,
// StateAborting; refused while a commit is unresolved.
//
// Unless the transaction was prepared, so that another process may commit it,
// every error is [IsNotCommitted]: nothing of the transaction will become
// visible. If it is also [IsOutcomeUnknown] call Abort again. ctx bounds the
// wait; if it ends while participants are still waited for, or before the
// request left, the session is in StateAbortableError, since what they dropped
// is lost.
func (s *Session) Abort(ctx context.Context) error {
	return s.end(ctx, "abort", statemachine.CallAbort, false)
}

func (s *Session) end(ctx context.Context, op string, call statemachine.Call, commit bool) error {
	s.mu.Lock()
	t := s.txn
	joining := s.busy && s.running == call
	opposite := s.busy && (s.running == statemachine.CallCommit || s.running == statemachine.CallAbort) && !joining
	if opposite || !joining && !s.legalLocked(call) || t == nil {
		defer s.mu.Unlock()
		return s.stateErrorLocked(op)
	}
	s.mu.Unlock()
	release, err := s.slot(ctx, call, op)
	if err != nil {
		return s.joinFailed(op, t, joining, commit, err)
	}
	defer release()
	s.mu.Lock()
	if s.txn != t || t.ended {
		defer s.mu.Unlock()
		if joining && (t.verdict == Nothing || t.verdict == Committed && commit || t.verdict == Aborted && !commit) {
			return nil
		}
		return s.stateErrorLocked(op)
	}
	if !s.legalLocked(call) {
		defer s.mu.Unlock()
		return s.stateErrorLocked(op)
	}
	state := s.state
	s.mu.Unlock()

	ctx, done := s.bound(ctx)
	defer done()
	return s.endHolding(ctx, op, t, state, commit)
}

// joinFailed is the error of a call that waited for another that ends t: what
// that one has sent is this one's too.
func (s *Session) joinFailed(op string, t *transaction, joining, commit bool, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var e *Error
	if !joining || !errors.As(err, &e) {
		return err
	}
	f := e.facts
	if t.sentEnd {
		f = isUnknown
	}
	if !commit && !t.wasPrepared {
		f |= isNotCommitted
	}
	return s.errorLocked(op, f, t.sentEnd, e.Err)
}

// endHolding ends t in the given direction; the slot is held.
func (s *Session) endHolding(ctx context.Context, op string, t *transaction, state State, commit bool) error {
	switch {
	case t.sealedOrEnding():
	case commit && state == StateInTransaction:
		if err := s.flush(ctx, op, t); err != nil {
			return err
		}
	case !commit && (state == StateInTransaction || state == StateAbortableError):
		if err := s.discard(ctx, t); err != nil {
			return s.discardFailed(op, err)
		}
	}
	s.mu.Lock()
	if s.state == StateFatalError {
		defer s.mu.Unlock()
		return s.stateErrorLocked(op) // a participant's late answer was a fence
	}
	worked, resumed := t.worked, s.kind.Resumed
	s.mu.Unlock()
	if !worked {
		return s.endWithoutWork(t, commit)
	}
	if resumed {
		if done, err := s.checkResumed(ctx, op, t, commit); done {
			return err
		}
	}
	if !commit && t.prepared() && t.newRules() {
		if done, err := s.checkAbort(ctx, op, t); done {
			return err
		}
	}
	res := s.sendEnd(ctx, t, commit)
	return s.readEnd(ctx, op, t, commit, res)
}

// sealedOrEnding reports whether the participants have nothing more to do.
func (t *transaction) sealedOrEnding() bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.sealed && t.s.state != StateAbortableError
}

// discardFailed leaves a transaction whose participants have dropped some of
// its work: it must not be committed any more.
func (s *Session) discardFailed(op string, err error) error {
	s.mu.Lock()
	defer s.unlock()
	if s.state == StateFatalError {
		return s.stateErrorLocked(op)
	}
	cause := s.errorLocked(op, isAbortable|isNotCommitted|isNeverSent, false, fmt.Errorf("an abort was cut short: %w", err))
	s.setState(statemachine.Fail, cause)
	s.restateLocked(cause)
	return s.errorLocked(op, isAbortable|isNotCommitted|isNeverSent, false, err)
}

// endWithoutWork ends a transaction that the coordinator has never heard of:
// with current brokers an EndTxn(commit) for it would be refused.
func (s *Session) endWithoutWork(t *transaction, commit bool) error {
	s.mu.Lock()
	if commit {
		s.setState(statemachine.SendCommit, nil)
	} else {
		s.setState(statemachine.SendAbort, nil)
	}
	s.unlock()
	v := Nothing
	s.conclude(t, v, Evidence{Source: "answer", ProducerEpoch: t.ident.epoch, Text: "nothing was ever written"}, nil)
	s.endedState()
	return nil
}

// watchedEnd is an EndTxnRequest that tells when it is encoded: from then on
// it may have reached the coordinator.
type watchedEnd struct {
	*kmsg.EndTxnRequest
	encoded func()
}

// AppendTo is called by the connection when it writes.
func (r watchedEnd) AppendTo(dst []byte) []byte {
	r.encoded()
	return r.EndTxnRequest.AppendTo(dst)
}

// sendEnd sends EndTxn until an answer decides or ctx ends. The session moves
// to StateCommitting or StateAborting when the first request is written.
func (s *Session) sendEnd(ctx context.Context, t *transaction, commit bool) transport.Result {
	event := statemachine.SendAbort
	if commit {
		event = statemachine.SendCommit
	}
	encoded := func() {
		s.mu.Lock()
		if !t.sentEnd {
			t.sentEnd, t.endCommit = true, commit
			s.setState(event, nil)
		}
		s.unlock()
	}
	call := transport.Call{
		Target: transport.TxnCoordinator(s.id),
		New: func() kmsg.Request {
			req := kmsg.NewPtrEndTxnRequest()
			req.TransactionalID, req.Commit = s.id, commit
			req.ProducerID, req.ProducerEpoch = t.ident.id, t.ident.epoch
			return watchedEnd{req, encoded}
		},
		Code: func(r kmsg.Response) (int16, string) { return r.(*kmsg.EndTxnResponse).ErrorCode, "" },
	}
	if t.newRules() {
		call.MinVersion = 5
	} else {
		call.MaxVersion = 4
	}
	res := s.lane.Do(ctx, call)
	s.mu.Lock()
	t.openEnd = t.openEnd || res.Unanswered
	if res.Unanswered && !t.newRules() {
		// The transaction may have ended and be followed by another of the
		// same identity: look again before the next try.
		t.checked = false
	}
	s.mu.Unlock()
	return res
}

// readEnd draws the conclusion from what became of an EndTxn.
func (s *Session) readEnd(ctx context.Context, op string, t *transaction, commit bool, res transport.Result) error {
	if res.Err == nil {
		resp := res.Resp.(*kmsg.EndTxnResponse)
		s.mu.Lock()
		if !s.kind.Resumed {
			if resp.ProducerID >= 0 && resp.ProducerEpoch >= 0 {
				s.adoptLocked(identity{resp.ProducerID, resp.ProducerEpoch})
				s.markers = newMarkerGate()
			} else if t.newRules() {
				// Without the next identity the old one must not be used.
				s.mustInit = true
			}
			// A copy of an end that another process has sent would end the
			// next transaction.
			s.mustInit = s.mustInit || !t.newRules() && (t.openEnd || t.openWork || t.failed || t.wasPrepared)
		}
		s.unlock()
		v := Aborted
		if commit {
			v = Committed
		}
		s.conclude(t, v, Evidence{Source: "answer", ProducerEpoch: t.ident.epoch, Text: "EndTxn was answered without an error"}, nil)
		s.endedState()
		return nil
	}
	var ke *kerr.Error
	answered := errors.As(res.Err, &ke) && !res.Class.Retries() && ctx.Err() == nil
	if !answered {
		return s.endOpen(op, t, commit, res.Err)
	}
	switch code := ke.Code; {
	case code == kerr.InvalidTxnState.Code || code == kerr.TransactionAbortable.Code:
		return s.endRefused(ctx, op, t, commit, res)
	case code == kerr.ProducerFenced.Code || code == kerr.InvalidProducerEpoch.Code:
		return s.endFenced(ctx, op, t, commit, res)
	case code == kerr.InvalidProducerIDMapping.Code || code == kerr.TransactionalIDNotFound.Code:
		return s.endForgotten(ctx, op, t, commit, res)
	case res.Class == transport.ClassDenied && commit && res.Sent && !t.open() && !t.prepared():
		return s.notCommitted(op, t, res.Err)
	}
	return s.endOpen(op, t, commit, res.Err)
}

// endOpen leaves the question open: only the same end may be called again.
// Where no request left, nothing has happened yet.
func (s *Session) endOpen(op string, t *transaction, commit bool, err error) error {
	s.mu.Lock()
	defer s.unlock()
	f := isUnknown
	if !t.sentEnd {
		f = isNeverSent
	}
	if !commit && !t.wasPrepared {
		f |= isNotCommitted
		if s.state == StateInTransaction {
			// The participants have dropped their work.
			cause := s.errorLocked(op, isAbortable|f, false, fmt.Errorf("an abort was cut short: %w", err))
			s.setState(statemachine.Fail, cause)
			s.restateLocked(cause)
		}
		if s.state == StateAbortableError {
			f |= isAbortable
		}
	}
	e := s.errorLocked(op, f, t.openEnd, err)
	if t.sentEnd && (s.state == StateCommitting || s.state == StateAborting) {
		s.err = e
	}
	return e
}

// notCommitted ends a commit that was definitely refused: the transaction can
// still be aborted.
func (s *Session) notCommitted(op string, t *transaction, err error) error {
	s.mu.Lock()
	if s.kind.Resumed {
		s.unlock()
		return s.endResumed(op, t, Aborted, Evidence{Source: "answer", ProducerEpoch: t.ident.epoch, Text: err.Error()}, isNotCommitted, err)
	}
	defer s.unlock()
	t.sentEnd, t.endCommit, t.openEnd = false, false, false // the abort that follows is the next end
	cause := s.errorLocked(op, isNotCommitted|isAbortable, false, err)
	s.setState(statemachine.Refused, cause)
	s.restateLocked(cause)
	return s.errorLocked(op, isNotCommitted|isAbortable, false, err)
}

// conclude records how t has ended and settles its participants.
func (s *Session) conclude(t *transaction, v Verdict, ev Evidence, err error) {
	s.mu.Lock()
	if t.ended {
		s.mu.Unlock()
		return
	}
	t.gateLocked()
	t.ended, t.verdict, t.evidence = true, v, ev
	t.cancel()
	s.stopBeatsLocked()
	s.mu.Unlock()
	s.settle(t, v)
	age := time.Since(t.began)
	s.tc.EachHook(func(h kgo.Hook) {
		if h, ok := h.(HookTxnEnd); ok {
			h.OnTxnEnd(s.id, v, age, err)
		}
	})
}

// endedState moves the session on after a transaction has ended: to Ready, or,
// resumed, to Closed, since the next epoch belongs to the writer.
func (s *Session) endedState() {
	s.mu.Lock()
	defer s.unlock()
	s.setState(statemachine.Ended, nil)
	if s.kind.Resumed {
		s.setState(statemachine.Close, nil)
	}
}

// endResumed closes a resumed session whose transaction has an outcome.
func (s *Session) endResumed(op string, t *transaction, v Verdict, ev Evidence, f facts, err error) error {
	s.conclude(t, v, ev, err)
	s.mu.Lock()
	defer s.unlock()
	s.setState(statemachine.Close, nil)
	if err == nil {
		return nil
	}
	return s.errorLocked(op, f, false, err)
}
