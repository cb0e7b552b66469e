package txnsession

import (
	"context"
	"errors"

	"github.com/ktxn/ktxn/internal/statemachine"
)

// Prepare is the first phase of a two-phase commit (KIP-939): it flushes the
// participants and returns what a committer needs to end the transaction, also
// from another process. Legal in StateInTransaction; afterwards the session is
// in StatePrepared and takes no more work.
//
// Nothing is sent to the coordinator, which does not know of the state: without
// [TwoPhaseCommit] the transaction timeout still runs. (Below
// transaction.version 2 its start time is asked for, which changes nothing.)
// Errors are as those of Commit before its request: [NeverSent] when ctx ended
// first, after which Prepare or Commit may be called again, else [IsAbortable].
func (s *Session) Prepare(ctx context.Context) (PreparedTxn, error) {
	const op = "prepare"
	release, err := s.take(ctx, statemachine.CallPrepare, op)
	if err != nil {
		return PreparedTxn{}, err
	}
	defer release()
	ctx, done := s.bound(ctx)
	defer done()
	s.mu.Lock()
	t := s.txn
	s.mu.Unlock()
	if !t.sealedOrEnding() {
		if err := s.flush(ctx, op, t); err != nil {
			return PreparedTxn{}, err
		}
	}
	s.mu.Lock()
	p := PreparedTxn{
		TransactionalID: s.id, ProducerID: t.ident.id, ProducerEpoch: t.ident.epoch,
		TransactionVersion: t.version, Empty: !t.worked, Witness: t.witness,
	}
	s.mu.Unlock()
	if !t.newRules() && !p.Empty {
		st, err := s.describe(ctx)
		if err != nil {
			return PreparedTxn{}, s.fail(op, isNeverSent, false, err)
		}
		p.StartMillis = st.StartTimestamp
	}
	s.mu.Lock()
	defer s.unlock()
	if !s.setState(statemachine.Prepare, nil) {
		return PreparedTxn{}, s.stateErrorLocked(op)
	}
	t.wasPrepared, t.from = true, p
	return p, nil
}

// Complete is the second phase of a two-phase commit (KIP-939): it commits the
// prepared transaction if stored is that one, and else aborts it, since what
// decided about it was never stored. It returns what was done.
//
// Legal in StatePrepared and, unresolved, in the state that the end it began
// has left; also in StateReady, where nothing is ongoing: that is a success,
// since the end may have happened before, and the verdict is what is known of
// it. Errors are those of Commit and Abort.
func (s *Session) Complete(ctx context.Context, stored PreparedTxn) (Verdict, error) {
	const op = "complete"
	s.mu.Lock()
	t, state := s.txn, s.state
	switch {
	case stored.TransactionalID != s.id:
		defer s.mu.Unlock()
		return Unknown, s.errorLocked(op, isNeverSent, false, errors.New("the stored transaction has the transactional id "+stored.TransactionalID))
	case state == StateReady, t != nil && t.ended && state == StateClosed && s.kind.Resumed:
		defer s.mu.Unlock()
		if t != nil && t.is(stored) {
			return t.verdict, nil
		}
		return Unknown, nil
	case state != StateCommitting && state != StateAborting && !s.legalLocked(statemachine.CallComplete):
		defer s.mu.Unlock()
		return Unknown, s.stateErrorLocked(op)
	}
	commit := t.is(stored)
	s.mu.Unlock()
	if commit {
		if err := s.Commit(ctx); err != nil {
			return Unknown, err
		}
		return Committed, nil
	}
	if err := s.Abort(ctx); err != nil {
		return Unknown, err
	}
	return Aborted, nil
}

// is reports whether t is the transaction that was stored.
func (t *transaction) is(stored PreparedTxn) bool {
	if t.from.TransactionalID == "" {
		return false
	}
	return t.from.ProducerID == stored.ProducerID && t.from.ProducerEpoch == stored.ProducerEpoch
}
