package statemachine

// Event is what happens to a session: a call that begins to take effect, or
// what became of one.
type Event uint8

// The events.
const (
	Initialize   Event = iota // InitProducerId is about to be sent
	GaveUp                    // it has no answer and is not tried again now
	Initialized               // an identity was given
	KeptPrepared              // KIP-939: an identity, and a transaction that goes on
	Begin                     // a transaction is opened
	Prepare                   // flushed for two-phase commit
	SendCommit                // EndTxn(commit) was written for the first time
	SendAbort                 // EndTxn(abort) was written for the first time
	Ended                     // the transaction has ended, or there was nothing to end
	Fail                      // the transaction can only be aborted now
	Refused                   // the coordinator has definitely not committed
	Kill                      // fenced, or anything else no call can mend
	Close                     // the session is given up
	numEvents
)

var eventNames = [numEvents]string{
	"initialize", "gave_up", "initialized", "kept_prepared", "begin", "prepare",
	"send_commit", "send_abort", "ended", "fail", "refused", "kill", "close",
}

// String returns the event's name, such as "send_commit".
func (e Event) String() string {
	if e < numEvents {
		return eventNames[e]
	}
	return "invalid"
}

// Events returns every event in order.
func Events() []Event {
	all := make([]Event, numEvents)
	for i := range all {
		all[i] = Event(i)
	}
	return all
}
