package torture

import (
	"fmt"
	"strings"
	"time"
)

// Report counts what happened. A transaction is in exactly one of Committed,
// Aborted, Refused and Undecided.
type Report struct {
	Seed     uint64
	Duration time.Duration
	Kills    int
	Faults   int // of the network, that a request met

	Transactions int // that were begun and had a record
	Committed    int // Commit returned nil, or Outcome said so
	Aborted      int // because it was wanted, or the session was given up
	Refused      int // an error of Commit called it not committed
	Undecided    int // nobody could tell: the records decide

	Unknown  int // calls that left an outcome open
	Resolved int // transactions that had such a call and an outcome in the end
	Sessions int // that were made, those of committers aside

	Prepared int // of the transactions, ended by a committer elsewhere
	Offsets  int // of the transactions, with a group's offsets

	Produced int // records
	Failed   int // of these, whose promise failed
	Visible  int // records in the end

	Slowest time.Duration // from a transaction's end to its outcome

	Violations []string
}

// String is the report for people.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v, %d kills, %d requests broken by the network, seed %d\n", r.Duration, r.Kills, r.Faults, r.Seed)
	fmt.Fprintf(&b, "transactions %d: committed %d, aborted %d, refused %d, undecided %d\n",
		r.Transactions, r.Committed, r.Aborted, r.Refused, r.Undecided)
	fmt.Fprintf(&b, "  with offsets %d, ended by a committer elsewhere %d\n", r.Offsets, r.Prepared)
	fmt.Fprintf(&b, "outcomes left open by a call %d, transactions resolved afterwards %d\n", r.Unknown, r.Resolved)
	fmt.Fprintf(&b, "sessions %d, slowest end %v\n", r.Sessions, r.Slowest.Round(time.Millisecond))
	fmt.Fprintf(&b, "records produced %d, failed %d, visible %d\n", r.Produced, r.Failed, r.Visible)
	fmt.Fprintf(&b, "promises broken %d\n", len(r.Violations))
	return b.String()
}
