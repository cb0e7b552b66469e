package statemachine

import "slices"

// Call is a public method of a session whose legality depends on the state.
type Call uint8

// The calls, named after the methods.
const (
	CallInitialize Call = iota
	CallInitializeKeepPrepared
	CallBegin
	CallAddPartitions
	CallSendOffsets
	CallPrepare
	CallComplete
	CallCommit
	CallAbort
	CallHeartbeat
	CallOutcome
	CallClose
	numCalls
)

var callNames = [numCalls]string{
	"Initialize", "InitializeKeepPrepared", "Begin", "AddPartitions", "SendOffsets",
	"Prepare", "Complete", "Commit", "Abort", "Heartbeat", "Outcome", "Close",
}

// String returns the method's name.
func (c Call) String() string {
	if c < numCalls {
		return callNames[c]
	}
	return "invalid"
}

// Calls returns every call in order.
func Calls() []Call {
	all := make([]Call, numCalls)
	for i := range all {
		all[i] = Call(i)
	}
	return all
}

// Kind is what else, beside its state, decides what may be called.
type Kind struct {
	Resumed  bool // made by Resume: participants, Begin and Initialize never
	TwoPhase bool // an open question of a two-phase transaction is not initialised away
}

// legal lists the calls of each state for an ordinary session.
var legal = [numStates][]Call{
	Uninitialized:  {CallInitialize, CallInitializeKeepPrepared, CallOutcome, CallClose},
	Initializing:   {CallClose},
	Ready:          {CallInitialize, CallBegin, CallComplete, CallOutcome, CallClose},
	InTransaction:  {CallAddPartitions, CallSendOffsets, CallPrepare, CallCommit, CallAbort, CallHeartbeat, CallOutcome, CallClose},
	Prepared:       {CallComplete, CallCommit, CallAbort, CallHeartbeat, CallOutcome, CallClose},
	Committing:     {CallInitialize, CallCommit, CallOutcome, CallClose},
	Aborting:       {CallInitialize, CallAbort, CallOutcome, CallClose},
	AbortableError: {CallInitialize, CallAbort, CallOutcome, CallClose},
	FatalError:     {CallOutcome, CallClose},
	Closed:         {CallOutcome, CallClose},
}

// Allowed returns the calls that are legal in s, in the order of [Calls].
func Allowed(s State, k Kind) []Call {
	if s >= numStates {
		return nil
	}
	out := make([]Call, 0, len(legal[s]))
	for _, c := range legal[s] {
		if c == CallInitialize || c == CallInitializeKeepPrepared || c == CallBegin {
			unresolved := s == Committing || s == Aborting
			if k.Resumed || k.TwoPhase && unresolved {
				continue
			}
		}
		out = append(out, c)
	}
	return out
}

// May reports whether c is legal in s.
func May(s State, k Kind, c Call) bool {
	return slices.Contains(Allowed(s, k), c)
}
