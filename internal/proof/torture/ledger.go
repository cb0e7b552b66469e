package torture

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

// verdict is what a session was told of a transaction.
type verdict uint8

const (
	undecided verdict = iota
	committed
	aborted
)

func (v verdict) String() string { return [...]string{"undecided", "committed", "not committed"}[v] }

// txn is one transaction in the books: how many records it wrote where, and what
// became of it. Their values follow from that.
type txn struct {
	counts  [partitions]int32
	offsets bool // it carried a group's offset: its own number + 1
	verdict verdict
	open    bool // a call left its outcome open
	refused bool // it was to be committed

	promised atomic.Int32 // promises that ran
	failed   atomic.Int32 // of these, with an error
}

func (t *txn) records() (n int32) {
	for _, c := range t.counts {
		n += c
	}
	return n
}

// value is the value of a record: who wrote it, in which transaction, and which
// of this transaction's records of the partition it is.
func value(worker, number int, partition, index int32) []byte {
	return fmt.Appendf(nil, "%d %d %d %d", worker, number, partition, index)
}

// ledger is what one session's worker has done, in order.
type ledger struct{ txns []*txn }

// offsets are the offsets that the group may have committed in the end: that of
// the last transaction which carried one and was committed, and those of the
// undecided ones after it.
func (l *ledger) offsets() []int64 {
	may := []int64{none}
	for i, t := range l.txns {
		if !t.offsets {
			continue
		}
		switch t.verdict {
		case committed:
			may = append(may[:0], int64(i+1))
		case undecided:
			may = append(may, int64(i+1))
		}
	}
	return may
}

// none is the offset of a group that has committed nothing.
const none = -1

func committedOffset(ctx context.Context, c *kafkatest.Cluster, group, topic string) (int64, error) {
	cl, err := kgo.NewClient(append(c.Opts(), kgo.DisableClientMetrics())...)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	got, err := kadm.NewClient(cl).FetchOffsets(kadm.RequireStable(ctx), group)
	if err != nil {
		return 0, err
	}
	o, ok := got.Lookup(topic, 0)
	if !ok {
		return none, nil
	}
	return o.At, o.Err
}

// compare holds the books against what a reader saw, partition by partition and
// in order, and returns what is wrong.
func compare(ledgers []*ledger, recs []*kgo.Record) (wrong []string) {
	type place struct{ worker, number int }
	seen := make(map[place]*[partitions]int32)
	last := make(map[int32]map[int]int) // by partition and worker: the newest transaction
	for _, r := range recs {
		var at place
		var p, i int32
		if _, err := fmt.Sscanf(string(r.Value), "%d %d %d %d", &at.worker, &at.number, &p, &i); err != nil ||
			at.worker < 0 || at.worker >= len(ledgers) || at.number < 0 || at.number >= len(ledgers[at.worker].txns) || p != r.Partition {
			wrong = append(wrong, fmt.Sprintf("partition %d offset %d: nobody wrote %q there", r.Partition, r.Offset, r.Value))
			continue
		}
		if seen[at] == nil {
			seen[at] = new([partitions]int32)
		}
		if next := seen[at][p]; i != next {
			wrong = append(wrong, fmt.Sprintf("session %d transaction %d partition %d offset %d: record %d where %d is next", at.worker, at.number, p, r.Offset, i, next))
		}
		seen[at][p] = i + 1
		if last[p] == nil {
			last[p] = make(map[int]int)
		}
		if before := last[p][at.worker]; at.number < before {
			wrong = append(wrong, fmt.Sprintf("session %d partition %d offset %d: transaction %d after %d", at.worker, p, r.Offset, at.number, before))
		}
		last[p][at.worker] = at.number
	}
	for w, l := range ledgers {
		for n, t := range l.txns {
			var got [partitions]int32
			if s := seen[place{w, n}]; s != nil {
				got = *s
			}
			all, nothing := got == t.counts, got == [partitions]int32{}
			switch {
			case t.verdict == committed && !all:
				wrong = append(wrong, fmt.Sprintf("session %d transaction %d is committed: %v records are visible, not %v", w, n, got, t.counts))
			case t.verdict == aborted && !nothing:
				wrong = append(wrong, fmt.Sprintf("session %d transaction %d is not committed: %v records are visible", w, n, got))
			case !all && !nothing:
				wrong = append(wrong, fmt.Sprintf("session %d transaction %d is undecided: %v of %v records are visible", w, n, got, t.counts))
			}
			if ran := t.promised.Load(); ran != t.records() {
				wrong = append(wrong, fmt.Sprintf("session %d transaction %d: %d promises ran for %d records", w, n, ran, t.records()))
			}
			if failed := t.failed.Load(); failed > 0 && t.verdict == committed {
				wrong = append(wrong, fmt.Sprintf("session %d transaction %d is committed, with %d failed promises", w, n, failed))
			}
		}
	}
	return wrong
}
