package torture

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The judge has to notice whatever may be wrong: it is shown a log that is
// right, and then one thing after the other that is not.
func TestTheJudgeNotices(t *testing.T) {
	books := func() []*ledger {
		l := &ledger{txns: []*txn{
			{counts: [partitions]int32{2, 1}, verdict: committed},
			{counts: [partitions]int32{1}, verdict: aborted},
			{counts: [partitions]int32{1, 1}, verdict: undecided},
			{counts: [partitions]int32{1}, verdict: committed},
		}}
		for _, t := range l.txns {
			t.promised.Store(t.records())
		}
		return []*ledger{l}
	}
	logOf := func(values ...string) (recs []*kgo.Record) {
		for _, v := range values {
			var w, n, p, i int32
			_, err := fmt.Sscanf(v, "%d %d %d %d", &w, &n, &p, &i)
			require.NoError(t, err)
			recs = append(recs, &kgo.Record{Partition: p, Value: []byte(v)})
		}
		return recs
	}
	right := []string{"0 0 0 0", "0 0 0 1", "0 3 0 0", "0 0 1 0"}
	for name, c := range map[string]struct {
		log    []string
		change func(*ledger)
		wrong  string
	}{
		"right":                            {log: right},
		"the undecided one is there":       {log: []string{"0 0 0 0", "0 0 0 1", "0 2 0 0", "0 3 0 0", "0 0 1 0", "0 2 1 0"}},
		"half of the undecided one":        {log: []string{"0 0 0 0", "0 0 0 1", "0 2 0 0", "0 3 0 0", "0 0 1 0"}, wrong: "undecided"},
		"a record of a commit is lost":     {log: []string{"0 0 0 0", "0 3 0 0", "0 0 1 0"}, wrong: "transaction 0 is committed"},
		"the first of a commit is lost":    {log: []string{"0 0 0 1", "0 3 0 0", "0 0 1 0"}, wrong: "record 1 where 0 is next"},
		"a whole commit is lost":           {log: []string{"0 0 0 0", "0 0 0 1", "0 0 1 0"}, wrong: "transaction 3 is committed"},
		"a record is doubled":              {log: append(right, "0 0 1 0"), wrong: "record 0 where 1 is next"},
		"the last record is doubled":       {log: []string{"0 0 0 0", "0 0 0 1", "0 0 0 1", "0 3 0 0", "0 0 1 0"}, wrong: "record 1 where 2 is next"},
		"records change places":            {log: []string{"0 0 0 1", "0 0 0 0", "0 3 0 0", "0 0 1 0"}, wrong: "record 1 where 0 is next"},
		"transactions change places":       {log: []string{"0 3 0 0", "0 0 0 0", "0 0 0 1", "0 0 1 0"}, wrong: "transaction 0 after 3"},
		"an aborted record":                {log: []string{"0 0 0 0", "0 0 0 1", "0 1 0 0", "0 3 0 0", "0 0 1 0"}, wrong: "not committed"},
		"a record of nobody":               {log: append(right, "7 1 0 0"), wrong: "nobody wrote"},
		"a record of no transaction":       {log: append(right, "0 9 0 0"), wrong: "nobody wrote"},
		"a promise did not run":            {log: right, change: func(l *ledger) { l.txns[1].promised.Store(0) }, wrong: "0 promises ran for 1"},
		"a promise ran twice":              {log: right, change: func(l *ledger) { l.txns[1].promised.Store(2) }, wrong: "2 promises ran for 1"},
		"committed although it was failed": {log: right, change: func(l *ledger) { l.txns[0].failed.Store(1) }, wrong: "1 failed promises"},
	} {
		t.Run(name, func(t *testing.T) {
			b := books()
			if c.change != nil {
				c.change(b[0])
			}
			wrong := compare(b, logOf(c.log...))
			if c.wrong == "" {
				require.Empty(t, wrong)
				return
			}
			require.NotEmpty(t, wrong)
			require.Contains(t, wrong[0], c.wrong)
		})
	}
	moved := logOf(right...)
	moved[0].Partition = 2
	require.NotEmpty(t, compare(books(), moved), "a record in another partition")
}

func TestOffsetsThatMayBe(t *testing.T) {
	one := func(v verdict) *txn { return &txn{offsets: true, verdict: v} }
	for _, c := range []struct {
		txns []*txn
		want []int64
	}{
		{nil, []int64{none}},
		{[]*txn{{verdict: committed}, one(aborted)}, []int64{none}},
		{[]*txn{one(committed), one(aborted), {verdict: committed}}, []int64{1}},
		{[]*txn{one(committed), one(undecided), one(aborted), one(undecided)}, []int64{1, 2, 4}},
		{[]*txn{one(undecided), one(committed)}, []int64{2}},
	} {
		require.Equal(t, c.want, (&ledger{c.txns}).offsets())
	}
}
