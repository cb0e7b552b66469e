package statemachine

// State is where a session stands.
type State uint8

// The states, in the order of a session's life.
const (
	Uninitialized  State = iota // no identity that may be used
	Initializing                // InitProducerId is under way
	Ready                       // an identity, no transaction
	InTransaction               // a transaction is open
	Prepared                    // flushed; only its end may follow
	Committing                  // EndTxn(commit) was sent and has no answer yet
	Aborting                    // EndTxn(abort) was sent and has no answer yet
	AbortableError              // the transaction can only be aborted
	FatalError                  // a new session is needed
	Closed                      // terminal
	numStates
)

var stateNames = [numStates]string{
	"uninitialized", "initializing", "ready", "in_transaction", "prepared",
	"committing", "aborting", "abortable_error", "fatal_error", "closed",
}

// String returns the state's name, such as "in_transaction".
func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return "invalid"
}

// States returns every state in order.
func States() []State {
	all := make([]State, numStates)
	for i := range all {
		all[i] = State(i)
	}
	return all
}
