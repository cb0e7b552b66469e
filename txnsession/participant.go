package txnsession

import (
	"context"
	"errors"
	"reflect"

	"github.com/ktxn/ktxn/internal/link"
	"github.com/ktxn/ktxn/internal/statemachine"
)

// Participant takes part in a session's transactions: a producer, a share
// consumer, or an application that wants to be asked before the end. Its
// methods are never called concurrently for one transaction and never under a
// lock.
type Participant interface {
	// Flush is called before Commit and Prepare. It returns when all that the
	// participant has sent is acknowledged. An error makes the transaction
	// abortable, unless ctx has ended: then nothing was sent and Commit may
	// be called again, which flushes again. In PhaseWork the context also
	// lets work through that is refused to other callers by then: pass it to
	// Produce and SendOffsets.
	Flush(ctx context.Context) error
	// Discard is called before Abort. It drops what is unsent and waits for
	// what is in flight.
	Discard(ctx context.Context) error
	// Settle is called once for each Enlist, when it is decided how the
	// transaction ended, before the session is Ready again. It must do no
	// I/O and call no method of the session.
	Settle(v Verdict)
}

// Phase orders the participants' Flush.
type Phase uint8

const (
	// PhaseWork is for the application, which may still produce in Flush.
	PhaseWork Phase = iota
	// PhaseSend is for clients, which send what they hold.
	PhaseSend
	// PhaseVerify is the last look before EndTxn: claims, lock deadlines.
	PhaseVerify
	numPhases
)

// Enlist joins p to the open transaction and returns p's view of it. It is
// idempotent within one transaction (the first phase stays), and refused
// unless a transaction is open and its end has not begun. It does not block.
func (s *Session) Enlist(p Participant, phase Phase) (*Txn, error) {
	return s.enlist(context.Background(), p, phase)
}

func (s *Session) enlist(ctx context.Context, p Participant, phase Phase) (*Txn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == nil || phase >= numPhases || !reflect.TypeOf(p).Comparable() {
		return nil, s.errorLocked("enlist", isNeverSent, false, errors.New("nil participant or unknown phase"))
	}
	t := s.txn
	if s.state != StateInTransaction || s.kind.Resumed || t == nil || t.gated && !t.passes(ctx) || t.sealed {
		return nil, s.stateErrorLocked("enlist")
	}
	for _, e := range t.parts {
		if e.p == p {
			return e, nil
		}
	}
	e := &Txn{t: t, p: p, phase: phase}
	t.parts = append(t.parts, e)
	return e, nil
}

func init() {
	link.Enlist = func(ctx context.Context, session, participant any) (any, error) {
		t, err := session.(*Session).enlist(ctx, participant.(Participant), PhaseSend)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
}

// flush asks every participant, phase by phase, to send and await what it
// holds. A participant may enlist others while PhaseWork lasts. It returns nil
// only if the transaction may be committed or prepared.
func (s *Session) flush(ctx context.Context, op string, t *transaction) error {
	s.mu.Lock()
	if len(t.offsets) > 0 {
		defer s.mu.Unlock()
		return s.errorLocked(op, isNeverSent, false, errOffsetsOpen)
	}
	t.gateLocked()
	s.mu.Unlock()

	if err := t.quiet(ctx); err != nil {
		return s.flushFailed(ctx, op, err)
	}
	for phase := range numPhases {
		if err := s.flushPhase(ctx, t, phase); err != nil {
			return s.flushFailed(ctx, op, err)
		}
	}

	// Work that a participant has begun and not waited for.
	for {
		if err := t.quiet(ctx); err != nil {
			return s.flushFailed(ctx, op, err)
		}
		s.mu.Lock()
		if t.calls == 0 {
			break
		}
		s.mu.Unlock()
	}
	defer s.mu.Unlock()
	switch {
	case s.state != StateInTransaction:
		// A participant or a late answer has failed the transaction.
		return s.stateErrorLocked(op)
	case len(t.offsets) > 0:
		return s.errorLocked(op, isNeverSent, false, errOffsetsOpen)
	}
	t.sealed = true
	return nil
}

func (s *Session) flushPhase(ctx context.Context, t *transaction, phase Phase) error {
	if phase == PhaseWork {
		s.setInWork(t, true)
		defer s.setInWork(t, false)
		ctx = context.WithValue(ctx, flushKey{}, t)
	}
	for i := 0; ; i++ {
		s.mu.Lock()
		if i >= len(t.parts) {
			s.mu.Unlock()
			return nil
		}
		e := t.parts[i]
		s.mu.Unlock()
		if e.phase != phase {
			continue
		}
		if err := e.p.Flush(ctx); err != nil {
			return err
		}
	}
}

func (s *Session) setInWork(t *transaction, in bool) {
	s.mu.Lock()
	t.inWork = in
	s.mu.Unlock()
}

// flushFailed tells a flush that ctx cut short, after which Commit may be
// called again, from one that failed, after which only Abort may.
func (s *Session) flushFailed(ctx context.Context, op string, err error) error {
	s.mu.Lock()
	defer s.unlock()
	if s.state != StateInTransaction {
		return s.stateErrorLocked(op)
	}
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return s.errorLocked(op, isNeverSent, false, errors.Join(context.Cause(ctx), err))
	}
	s.setState(statemachine.Fail, err)
	return s.errorLocked(op, isAbortable|isNotCommitted|isNeverSent, false, err)
}

// discard asks every participant to drop what is unsent and to wait for what
// is in flight.
func (s *Session) discard(ctx context.Context, t *transaction) error {
	s.mu.Lock()
	t.gateLocked()
	t.cancel()
	parts := t.parts
	s.mu.Unlock()
	if err := t.quiet(ctx); err != nil {
		return err
	}
	for _, e := range parts {
		if err := e.p.Discard(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	t.sealed = true
	s.mu.Unlock()
	return nil
}

// settle tells the participants how t has ended, each once.
func (s *Session) settle(t *transaction, v Verdict) {
	s.mu.Lock()
	parts := t.parts
	t.parts = nil
	s.mu.Unlock()
	for _, e := range parts {
		e.p.Settle(v)
	}
}
