package txnsession_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/txnsession"
)

func (k *kit) manyPrepared(n int) []txnsession.PreparedTxn {
	k.t.Helper()
	txns := make([]txnsession.PreparedTxn, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s, err := txnsession.New(k.nc, k.id(fmt.Sprintf("txn-%03d", i)))
			if err != nil {
				return
			}
			if s.Initialize(k.ctx(20*time.Second)) != nil || s.Begin(k.ctx(20*time.Second)) != nil {
				return
			}
			w := k.writer(s)
			if w.write(int32(i%4), fmt.Sprint(i)) == nil {
				txns[i], _ = s.Prepare(k.ctx(20 * time.Second))
			}
			_ = s.Close(context.Background()) // leaves it open
		})
	}
	wg.Wait()
	for i, p := range txns {
		require.NotEmpty(k.t, p.TransactionalID, i)
	}
	return txns
}

func TestCommitterCommitsMany(t *testing.T) { each(t, testCommitterCommitsMany) }

func testCommitterCommitsMany(t *testing.T, b backend) {
	k := b.kit(t)
	txns := k.manyPrepared(100)
	k.net.Reset()
	done := 0
	c, err := txnsession.NewCommitter(k.client(), txnsession.MaxInFlight(16), txnsession.OnProgress(func(d, failed int) {
		done++
		require.Equal(t, done, d)
		require.Zero(t, failed)
	}))
	require.NoError(t, err)
	twice := append(slices.Clone(txns), txns[7])
	results := c.Commit(k.ctx(30*time.Second), twice)
	require.NoError(t, results.FirstErr())
	require.Len(t, results, 101)
	for i, r := range results {
		require.Equal(t, twice[i], r.Txn)
		require.Equal(t, txnsession.WasCommitted, r.Status)
		require.Equal(t, txnsession.Committed, r.Outcome.Verdict)
	}
	require.Equal(t, 100, k.requests(kmsg.EndTxn), "one request for each transaction")
	require.Equal(t, 100, done)
	require.Zero(t, k.requests(kmsg.Produce)+k.requests(kmsg.Fetch))
	require.Len(t, k.committed(), 100)
	require.Less(t, k.requests(kmsg.FindCoordinator), 20, "look-ups are batched")

	done = 0
	again := c.Commit(k.ctx(30*time.Second), txns[:10])
	require.NoError(t, again.FirstErr(), "committed before is committed")
}

func TestCommitterTellsThemApart(t *testing.T) { each(t, testCommitterTellsThemApart) }

func testCommitterTellsThemApart(t *testing.T, b backend) {
	k := b.kit(t)
	txns := k.manyPrepared(4)
	aborted := k.resume(txns[1])
	require.NoError(t, aborted.Abort(k.ctx(10*time.Second)))
	k.net.Inject(faultnet.Fault{
		Key: int16(kmsg.EndTxn), Node: faultnet.Any, Action: faultnet.Answer, Code: kerr.InvalidProducerIDMapping.Code, Times: forever,
		Match: func(r faultnet.Request) bool {
			req, err := r.Decode()
			return err == nil && req.(*kmsg.EndTxnRequest).TransactionalID == txns[2].TransactionalID
		},
	})
	txns[2].Witness = txnsession.Witness{}
	bad := txnsession.PreparedTxn{TransactionalID: "x", ProducerID: -5}
	var failed int
	c, err := txnsession.NewCommitter(k.nc, txnsession.OnProgress(func(_, f int) { failed = f }))
	require.NoError(t, err)
	rs := c.Commit(k.ctx(20*time.Second), append(txns, bad))
	require.Equal(t, 3, failed)
	require.Equal(t, txnsession.WasCommitted, rs[0].Status)
	require.Equal(t, txnsession.WasAborted, rs[1].Status)
	require.True(t, txnsession.IsNotCommitted(rs[1].Err), rs[1].Err)
	require.Equal(t, txnsession.OutcomeUnknown, rs[2].Status)
	require.ErrorIs(t, rs[2].Err, txnsession.ErrOutcomeLost)
	require.Equal(t, txnsession.WasCommitted, rs[3].Status)
	require.Equal(t, txnsession.NotTried, rs[4].Status)
	require.Error(t, rs.FirstErr())
	for s := txnsession.WasCommitted; s <= txnsession.NotTried; s++ {
		require.NotEqual(t, "invalid", s.String())
	}
	require.Equal(t, "invalid", txnsession.CommitStatus(0).String())
}

func TestCommitterEndsByContext(t *testing.T) { each(t, testCommitterEndsByContext) }

func testCommitterEndsByContext(t *testing.T, b backend) {
	k := b.kit(t)
	txns := k.manyPrepared(20)
	held := k.net.Inject(faultnet.Fault{Key: int16(kmsg.EndTxn), Node: faultnet.Any, Action: faultnet.Delay, Times: forever, Skip: 5})
	defer held.Remove()
	c, err := txnsession.NewCommitter(k.nc, txnsession.MaxInFlight(4))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		for held.Hits() == 0 {
			if k.net.Wait(k.ctx(10*time.Second), func([]faultnet.Request) bool { return held.Hits() > 0 }) != nil {
				return
			}
		}
	}()
	count := make(map[txnsession.CommitStatus]int)
	for r := range c.CommitSeq(ctx, slices.Values(txns)) {
		count[r.Status]++
		if r.Status == txnsession.NotTried {
			require.True(t, txnsession.NeverSent(r.Err), r.Err)
			require.ErrorIs(t, r.Err, context.Canceled)
		}
	}
	require.Equal(t, 20, count[txnsession.WasCommitted]+count[txnsession.OutcomeUnknown]+count[txnsession.NotTried])
	require.Positive(t, count[txnsession.NotTried])
	require.LessOrEqual(t, count[txnsession.OutcomeUnknown], 4)
	require.GreaterOrEqual(t, count[txnsession.WasCommitted], 1)
	k.net.Reset()
	require.NoError(t, c.Commit(k.ctx(20*time.Second), txns).FirstErr())
	require.Len(t, k.committed(), 20)
}

func TestCommitSeqMayBeLeft(t *testing.T) {
	k := newKit(t)
	txns := k.manyPrepared(10)
	c, err := txnsession.NewCommitter(k.nc, txnsession.MaxInFlight(2))
	require.NoError(t, err)
	read := 0
	seq := func(yield func(txnsession.PreparedTxn) bool) {
		for _, p := range txns {
			read++
			if !yield(p) {
				return
			}
		}
	}
	for r := range c.CommitSeq(k.ctx(10*time.Second), seq) {
		require.Equal(t, txnsession.WasCommitted, r.Status)
		break
	}
	require.Less(t, read, 10, "the sequence is read as results are taken")
	require.NoError(t, c.Commit(k.ctx(10*time.Second), txns).FirstErr())
}

func TestLeftovers(t *testing.T) { each(t, testLeftovers) }

func testLeftovers(t *testing.T, b backend) {
	k := b.kit(t)
	k.manyPrepared(3)
	_, _ = k.open("else", "x")
	c, err := txnsession.NewCommitter(k.nc)
	require.NoError(t, err)
	left, err := c.Leftovers(k.ctx(10*time.Second), k.id("txn-"))
	require.NoError(t, err)
	require.Len(t, left, 3)
	for i, l := range left {
		require.Equal(t, k.id(fmt.Sprintf("txn-%03d", i)), l.TransactionalID)
		require.Equal(t, "Ongoing", l.State)
		require.Equal(t, time.Minute, l.Timeout)
		require.Equal(t, map[string][]int32{k.topic: {int32(i)}}, l.Partitions)
		require.Positive(t, l.StartMillis)
	}
	rs := c.AbortLeftovers(k.ctx(10*time.Second), left)
	for _, r := range rs {
		require.NoError(t, r.Err)
		require.Equal(t, txnsession.WasAborted, r.Status)
	}
	k.decided()
	left, err = c.Leftovers(k.ctx(10*time.Second), k.mark)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, k.id("else"), left[0].TransactionalID)
	require.Empty(t, k.committed())
	k.net.DownAll()
	_, err = c.Leftovers(k.ctx(100*time.Millisecond), "")
	require.Error(t, err)
	k.net.UpAll()
}

func TestCommitterOptions(t *testing.T) {
	k := newKit(t)
	for _, opts := range [][]txnsession.CommitterOpt{
		{txnsession.MaxInFlight(0)}, {nil}, {txnsession.SessionOpts(txnsession.TransactionTimeout(-1))},
	} {
		_, err := txnsession.NewCommitter(k.nc, opts...)
		require.Error(t, err)
	}
	_, err := txnsession.NewCommitter(nil)
	require.Error(t, err)
}
