package txnsession

import (
	"context"
	"errors"
	"time"

	"github.com/ktxn/ktxn/internal/statemachine"
)

// closeLimit bounds Close where its context does not.
const closeLimit = 10 * time.Second

// Close gives the session up and frees what it holds. A transaction that is
// open is aborted, in one try. A prepared one, one whose end is unresolved, and
// that of a resumed session is left as it is: nothing is sent. Calls that are
// under way end with [ErrClosed]. Legal in every state, idempotent; every call
// waits for the first to be done.
//
// ctx bounds the wait, and so does a limit of 10 s. The error tells that the
// abort failed (the coordinator does it when the transaction times out) or that
// the wait was cut; the session is closed all the same.
func (s *Session) Close(ctx context.Context) error {
	const op = "close"
	ctx, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	s.mu.Lock()
	first := !s.closeBegun
	s.closeBegun = true
	s.mu.Unlock()
	if !first {
		select {
		case <-s.closed:
			return nil
		case <-ctx.Done():
			return s.fail(op, 0, false, context.Cause(ctx))
		}
	}
	defer close(s.closed)
	s.beginClosing()

	var err error
	select {
	case s.op <- struct{}{}:
		// Beside us: a participant's Discard may ignore its context.
		ended := make(chan error, 1)
		s.work.Go(func() {
			err := s.abortOpen(ctx)
			<-s.op
			ended <- err
		})
		select {
		case err = <-ended:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	case <-ctx.Done():
		// A participant ignores its context. The session is closed under it.
		err = context.Cause(ctx)
	}

	s.mu.Lock()
	t := s.txn
	s.setState(statemachine.Close, nil)
	s.unlock()
	if t != nil {
		s.conclude(t, s.verdictAtClose(t, err), Evidence{Source: "none", Text: "the session was closed"}, ErrClosed)
	}
	err = errors.Join(err, s.join(ctx))
	if s.closeLane != nil {
		s.closeLane()
	}
	if err != nil {
		return s.fail(op, 0, false, err)
	}
	return nil
}

// abortOpen tries once to abort the transaction that is open.
func (s *Session) abortOpen(ctx context.Context) error {
	s.mu.Lock()
	t, state := s.txn, s.state
	s.mu.Unlock()
	if t == nil || s.kind.Resumed || t.ended || state != StateInTransaction && state != StateAbortableError {
		return nil
	}
	return s.endHolding(ctx, "close", t, state, false)
}

// verdictAtClose is what is certain of a transaction that Close leaves: one
// that was never prepared and has no commit under way cannot be committed by
// anybody.
func (s *Session) verdictAtClose(t *transaction, err error) Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case t.wasPrepared, t.commitOpenLocked(), s.kind.Resumed:
		return Unknown
	case !t.worked && err == nil:
		return Nothing
	}
	return Aborted
}

// join waits for the session's goroutines.
func (s *Session) join(ctx context.Context) error {
	joined := make(chan struct{})
	go func() {
		s.work.Wait()
		close(joined)
	}()
	select {
	case <-joined:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
