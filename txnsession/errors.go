package txnsession

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ktxn/ktxn/internal/statemachine"
	"github.com/ktxn/ktxn/internal/transport"
)

// Errors that a program may compare with errors.Is.
var (
	// ErrState is the cause of a call that the session's state does not
	// allow; nothing was sent. Error.Allowed lists what may be called.
	ErrState = errors.New("the session's state does not allow this call")
	// ErrClosed is the cause of a call on a closed session, and of calls that
	// Close cut short.
	ErrClosed = errors.New("the session is closed")
	// ErrEmptyID is returned for an empty transactional id: an id that
	// changes at each start would never fence its predecessor.
	ErrEmptyID = errors.New("the transactional id is empty")
	// ErrPartitionOwned is returned by Txn.Own for a partition that another
	// participant writes in this transaction: two writers that both number
	// their batches from 0 lose data as duplicates.
	ErrPartitionOwned = errors.New("another participant writes this partition in this transaction")
	// ErrTwoPhaseCommitUnsupported is returned where the cluster cannot do
	// what KIP-939 needs. Nothing was sent that could abort a transaction;
	// Resume works without it.
	ErrTwoPhaseCommitUnsupported = errors.New("the cluster does not support two-phase commit (KIP-939)")
	// ErrHeartbeatUnsupported is returned where the cluster has no
	// TxnHeartbeat (KIP-1309). Nothing was sent.
	ErrHeartbeatUnsupported = errors.New("the cluster does not support transaction heartbeats (KIP-1309)")
	// ErrTransactionVersion is returned where the finalized
	// transaction.version is too low for what was asked to be safe. Nothing
	// was sent.
	ErrTransactionVersion = errors.New("the cluster's finalized transaction.version is too low")
	// ErrOutcomeLost is returned when the coordinator has forgotten the
	// transactional id and nothing else tells how the transaction ended. No
	// further try can find out: stop.
	ErrOutcomeLost = errors.New("the coordinator has forgotten the transactional id: the outcome is lost")
)

// facts are what an Error knows beyond its fields.
type facts uint8

const (
	isNotCommitted facts = 1 << iota
	isUnknown
	isAbortable
	isFatal
	isFenced
	isNeverSent
	isJudged // by this package: what is not set is not so
)

// Error is the error of this module: every other is or wraps one.
type Error struct {
	// Op is the call that failed, such as "commit".
	Op string
	// State is the session's state after the call.
	State State
	// Allowed lists the calls that are legal in that state.
	Allowed []string
	// MaybeSent reports whether a request may have reached a broker without
	// an answer, so that its effect may have happened.
	MaybeSent bool
	// Err is the cause: a *kerr.Error, the context's error, a kgo or network
	// error, or one of this package's.
	Err error

	facts facts
}

// Error returns what failed, why, what is known of the outcome and what may be
// called next.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "txnsession: %s: %v", e.Op, e.Err)
	switch f := e.known(); {
	case f&isUnknown != 0:
		b.WriteString("; the outcome is unknown")
	case f&isNotCommitted != 0:
		b.WriteString("; not committed")
	case f&isNeverSent != 0:
		b.WriteString("; nothing was sent")
	}
	if len(e.Allowed) > 0 { // else it is no session's
		fmt.Fprintf(&b, "; the session is %s and allows %s", e.State, strings.Join(e.Allowed, ", "))
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// known returns the facts; those of an error that another package built are
// read from the broker's code that it carries, else from the state.
func (e *Error) known() facts {
	if e.facts != 0 {
		return e.facts
	}
	var ke *kerr.Error
	if !errors.As(e.Err, &ke) {
		switch e.State {
		case StateAbortableError:
			return isAbortable
		case StateFatalError:
			return isFatal
		default:
			return 0
		}
	}
	switch transport.Classify(keyProduce, ke.Code) {
	case transport.ClassFenced:
		return isFenced | isFatal
	case transport.ClassFatal:
		return isFatal
	case transport.ClassAbortable:
		return isAbortable
	}
	return 0
}

func factsOf(err error) facts {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.known()
	}
	return 0
}

// IsNotCommitted reports whether err says that the transaction is certainly
// not committed, and that no later call can commit it. False for nil.
func IsNotCommitted(err error) bool { return factsOf(err)&isNotCommitted != 0 }

// IsOutcomeUnknown reports whether err leaves open how the transaction ended:
// an end was sent and has no answer that decides. The session stays in
// StateCommitting or StateAborting; call the same end again, or Outcome.
func IsOutcomeUnknown(err error) bool { return factsOf(err)&isUnknown != 0 }

// IsAbortable reports whether Abort, then Begin, will get the session going
// again.
func IsAbortable(err error) bool { return factsOf(err)&isAbortable != 0 }

// IsFatal reports whether the session is of no more use: a new one is needed.
func IsFatal(err error) bool { return factsOf(err)&isFatal != 0 }

// IsFenced reports whether another owner has taken the transactional id over.
// It is no failure of this process: stop quietly.
func IsFenced(err error) bool { return factsOf(err)&isFenced != 0 }

// NeverSent reports whether provably no byte of the call's request left this
// process, so that it has had no effect and may be called again.
func NeverSent(err error) bool { return factsOf(err)&isNeverSent != 0 }

// errorLocked builds the error of op from the present state; s.mu is held.
func (s *Session) errorLocked(op string, f facts, maybeSent bool, err error) *Error {
	calls := statemachine.Allowed(statemachine.State(s.state), s.kind)
	names := make([]string, len(calls))
	for i, c := range calls {
		names[i] = c.String()
	}
	return &Error{Op: op, State: s.state, Allowed: names, MaybeSent: maybeSent, Err: err, facts: f | isJudged}
}

// restateLocked has e, which caused a change of the state, tell of the state
// after it. s.mu is held.
func (s *Session) restateLocked(e *Error) {
	now := s.errorLocked(e.Op, e.facts, e.MaybeSent, e.Err)
	e.State, e.Allowed = now.State, now.Allowed
}

// stateErrorLocked is the error of a call that the state does not allow. It
// carries the cause of an error state, so that a fenced session answers every
// call with the same reason. s.mu is held.
func (s *Session) stateErrorLocked(op string) *Error {
	switch {
	case s.state == StateClosed:
		return s.errorLocked(op, isNeverSent, false, ErrClosed)
	case s.err == nil:
		return s.errorLocked(op, isNeverSent, false, ErrState)
	}
	f := factsOf(s.err) &^ (isUnknown | isNeverSent)
	switch s.state {
	case StateAbortableError:
		f |= isAbortable | isNotCommitted
	case StateFatalError:
		f |= isFatal
	case StateCommitting, StateAborting:
		f = isUnknown
	}
	return s.errorLocked(op, f|isNeverSent, false, fmt.Errorf("%w: %w", ErrState, s.err))
}
