package txnsession

import "github.com/ktxn/ktxn/internal/statemachine"

// State is where a session stands; see docs/state-machine.md for the table of
// transitions and of the calls that are legal in each state.
type State uint8

// The states of a session. They are those of Kafka's transaction manager, plus
// StateClosed.
const (
	StateUninitialized  State = iota // no identity yet, or Initialize gave up
	StateInitializing                // Initialize is under way
	StateReady                       // Begin may be called
	StateInTransaction               // a transaction is open
	StatePrepared                    // flushed by Prepare, or resumed: only its end may follow
	StateCommitting                  // a commit was sent and is not resolved
	StateAborting                    // an abort was sent and is not resolved
	StateAbortableError              // the transaction can only be aborted
	StateFatalError                  // a new session is needed
	StateClosed                      // Close was called, or a resumed session's transaction has ended
)

// String returns the state's name, such as "in_transaction".
func (s State) String() string { return statemachine.State(s).String() }

// StateChange is one transition of a session, as [HookStateChange] gets it.
type StateChange struct {
	TransactionalID string
	From, To        State
	ProducerID      int64
	ProducerEpoch   int16
	Err             error // why, when To is an error state
}

// HookStateChange is called after each transition of a session, in order. It
// is registered with netclient.WithHooks and must be fast; it may
// read the session but must not call a method of it that blocks.
type HookStateChange interface {
	OnStateChange(StateChange)
}

// setState applies e; the caller holds s.mu. An event that the table does not
// know is a bug of this package and leaves the state as it is.
func (s *Session) setState(e statemachine.Event, err error) bool {
	from := s.state
	to, ok := statemachine.Next(statemachine.State(from), e)
	if !ok {
		return false
	}
	s.state = State(to)
	if s.txn != nil && (e == statemachine.Fail || e == statemachine.Refused) {
		s.txn.failed = true
	}
	switch e {
	case statemachine.Fail:
		if s.err == nil || from != StateAbortableError {
			s.err = err
		}
	case statemachine.Kill, statemachine.Refused, statemachine.GaveUp:
		s.err = err
	case statemachine.Close:
	default:
		s.err = nil
	}
	if from != s.state {
		s.changes = append(s.changes, StateChange{
			TransactionalID: s.id, From: from, To: s.state,
			ProducerID: s.ident.id, ProducerEpoch: s.ident.epoch, Err: s.err,
		})
	}
	return true
}

// unlock releases s.mu and tells the hooks what has changed, in order and by
// one goroutine at a time.
func (s *Session) unlock() {
	if s.telling || len(s.changes) == 0 {
		s.mu.Unlock()
		return
	}
	s.telling = true
	for len(s.changes) > 0 {
		changes := s.changes
		s.changes = nil
		s.mu.Unlock()
		for _, c := range changes {
			s.tell(c)
		}
		s.mu.Lock()
	}
	s.telling = false
	s.mu.Unlock()
}
