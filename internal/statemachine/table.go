package statemachine

// edge is one allowed transition.
type edge struct {
	from State
	on   Event
	to   State
}

// edges is the whole table: what is not here is refused. Kill leads to
// FatalError from every state but Closed, Close to Closed from every state;
// they are added in init.
var edges = []edge{
	{Uninitialized, Initialize, Initializing},
	{Ready, Initialize, Initializing},
	{Committing, Initialize, Initializing},
	{Aborting, Initialize, Initializing},
	{AbortableError, Initialize, Initializing},

	{Initializing, GaveUp, Uninitialized},
	{Initializing, Initialized, Ready},
	{Initializing, KeptPrepared, Prepared},

	{Ready, Begin, InTransaction},

	{InTransaction, Prepare, Prepared},
	{InTransaction, SendCommit, Committing},
	{InTransaction, SendAbort, Aborting},
	{InTransaction, Fail, AbortableError},
	// A transaction without any work ends without an RPC; it passes through
	// Committing or Aborting like every other.

	{Prepared, SendCommit, Committing},
	{Prepared, SendAbort, Aborting},
	{Prepared, Ended, Ready}, // Complete found nothing ongoing
	{Prepared, Fail, AbortableError},

	{Committing, Ended, Ready},
	{Committing, Refused, AbortableError},

	{Aborting, Ended, Ready},

	{AbortableError, SendAbort, Aborting},
	{AbortableError, Fail, AbortableError}, // the first cause stays
}

var table = func() (t [numStates][numEvents]struct {
	to State
	ok bool
}) {
	for _, e := range edges {
		t[e.from][e.on].to, t[e.from][e.on].ok = e.to, true
	}
	for s := range numStates {
		t[s][Close].to, t[s][Close].ok = Closed, true
		if s != Closed {
			t[s][Kill].to, t[s][Kill].ok = FatalError, true
		}
	}
	return t
}()

// Next returns the state that e leads to from s, and false if the table does
// not allow e there. It is total: any two values are answered.
func Next(s State, e Event) (State, bool) {
	if s >= numStates || e >= numEvents {
		return s, false
	}
	if t := table[s][e]; t.ok {
		return t.to, true
	}
	return s, false
}
