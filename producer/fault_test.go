package producer_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/txnsession"
)

// Whatever happens to a Produce on its way, a committed transaction has each
// record once and in order.
func TestProduceFaults(t *testing.T) {
	for name, f := range map[string]faultnet.Fault{
		"refused":                     {Action: faultnet.Refuse},
		"cut before the broker":       {Action: faultnet.CutBefore},
		"cut after the broker":        {Action: faultnet.CutAfter},
		"cut, arrives late":           {Action: faultnet.CutLate, Delay: 20 * time.Millisecond},
		"sent twice":                  {Action: faultnet.Duplicate},
		"answer held":                 {Action: faultnet.Delay, Delay: 50 * time.Millisecond},
		"request held":                {Action: faultnet.DelayRequest, Delay: 50 * time.Millisecond},
		"not enough replicas":         {Action: faultnet.Answer, Code: kerr.NotEnoughReplicas.Code},
		"not enough, but appended":    {Action: faultnet.AnswerAfter, Code: kerr.NotEnoughReplicasAfterAppend.Code},
		"timed out, but appended":     {Action: faultnet.AnswerAfter, Code: kerr.RequestTimedOut.Code},
		"not the leader":              {Action: faultnet.Answer, Code: kerr.NotLeaderForPartition.Code},
		"unknown topic":               {Action: faultnet.Answer, Code: kerr.UnknownTopicOrPartition.Code},
		"unknown topic id":            {Action: faultnet.Answer, Code: kerr.UnknownTopicID.Code},
		"B38 concurrent transactions": {Action: faultnet.Answer, Code: kerr.ConcurrentTransactions.Code, Times: 5},
		"over and over again":         {Action: faultnet.CutAfter, Times: 4},
	} {
		for _, skip := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s after %d", name, skip), func(t *testing.T) {
				each(t, func(k *kit) {
					t := k.t
					s := k.session()
					p := k.producer(s, kgo.ProducerBatchMaxBytes(2048))
					f := f
					f.Key, f.Node, f.Skip = int16(kmsg.Produce), faultnet.Any, skip
					inj := k.net.Inject(f)
					want := make([][]string, parts)
					for round := range 2 {
						require.NoError(t, s.Begin(k.ctx()))
						var out promised
						for i, v := range numbered(fmt.Sprintf("r%d-", round), 2000) {
							p.Produce(k.ctx(), k.rec(i%2, v), out.promise)
							want[i%2] = append(want[i%2], v)
						}
						require.NoError(t, s.Commit(k.ctx()))
						out.require(t, 2000, nil)
					}
					require.Positive(t, inj.Hits(), "the fault was met")
					require.Equal(t, want, k.committed())
				})
			})
		}
	}
}

// What a broker refuses for good fails the record and the transaction; Commit is
// refused without an EndTxn, Abort works, and so does the next transaction.
func TestB05_B14_B30_DefiniteRefusals(t *testing.T) {
	for _, code := range []*kerr.Error{
		kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.InvalidTxnState, kerr.UnknownProducerID,
		kerr.TransactionAbortable, kerr.TopicAuthorizationFailed, kerr.InvalidRecord, kerr.CorruptMessage, kerr.UnknownServerError,
	} {
		t.Run(code.Message, func(t *testing.T) {
			each(t, func(k *kit) {
				t := k.t
				s := k.session()
				p := k.producer(s)
				require.NoError(t, s.Begin(k.ctx()))
				var ok, bad promised
				for i := range 100 {
					p.Produce(k.ctx(), k.rec(0, fmt.Sprint(i)), ok.promise)
				}
				require.NoError(t, p.Flush(k.ctx()))
				ok.require(t, 100, nil)
				inits, epoch := k.requests(kmsg.InitProducerID), s.ProducerEpoch()
				inj := k.net.Inject(faultnet.Fault{Key: int16(kmsg.Produce), Node: faultnet.Any, Action: faultnet.Answer, Code: code.Code, Times: faultnet.Forever})
				p.Produce(k.ctx(), k.rec(1, "bad"), bad.promise)
				err := s.Commit(k.ctx())
				require.ErrorIs(t, err, code)
				require.True(t, txnsession.IsAbortable(err), "%v", err)
				require.True(t, txnsession.IsNotCommitted(err), "%v", err)
				// A Commit that finds the transaction failed does not flush.
				require.NoError(t, p.Flush(k.ctx()))
				bad.require(t, 1, code)
				require.Equal(t, txnsession.StateAbortableError, s.State())
				require.Positive(t, inj.Hits())
				inj.Remove()
				require.Zero(t, k.requests(kmsg.EndTxn))
				require.Equal(t, inits, k.requests(kmsg.InitProducerID), "no Init in a transaction")

				p.Produce(k.ctx(), k.rec(0, "late"), bad.promise)
				require.NoError(t, s.Abort(k.ctx()))
				require.NoError(t, p.Flush(k.ctx()))
				require.ErrorIs(t, bad.errs[1], txnsession.ErrState)
				require.NotZero(t, k.requests(kmsg.EndTxn))
				if !k.old {
					require.Equal(t, epoch+1, s.ProducerEpoch(), "one bump")
				}

				require.NoError(t, s.Begin(k.ctx()))
				var again promised
				for i := range parts {
					p.Produce(k.ctx(), k.rec(i, "again"), again.promise)
				}
				require.NoError(t, s.Commit(k.ctx()))
				again.require(t, parts, nil)
				require.Equal(t, [][]string{{"again"}, {"again"}, {"again"}, {"again"}}, k.committed())
			})
		})
	}
}

// A fence is fatal, for the record and for the session.
func TestB19_Fenced(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		s := k.session()
		p := k.producer(s)
		require.NoError(t, s.Begin(k.ctx()))
		p.Produce(k.ctx(), k.rec(0, "mine"), nil)
		require.NoError(t, p.Flush(k.ctx()))

		other, err := txnsession.New(k.nc, s.TransactionalID())
		require.NoError(t, err)
		require.NoError(t, other.Initialize(k.ctx()))
		q := k.producer(other)
		require.NoError(t, other.Begin(k.ctx()))
		require.NoError(t, q.ProduceSync(k.ctx(), k.rec(0, "theirs")).FirstErr())
		require.NoError(t, other.Commit(k.ctx()))

		require.Error(t, p.ProduceSync(k.ctx(), k.rec(0, "zombie")).FirstErr())
		require.Error(t, s.Commit(k.ctx()))
		require.NoError(t, other.Close(k.ctx()))
		require.Equal(t, [][]string{{"theirs"}, nil, nil, nil}, k.committed())
	})
}

// Close returns within its bound although every broker is gone, and every
// promise has run.
func TestB23_CloseWithDeadBrokers(t *testing.T) {
	for name, down := range map[string]func(*faultnet.Net){
		"connections are refused": (*faultnet.Net).DownAll,
		"nobody answers":          (*faultnet.Net).BlackholeAll,
	} {
		t.Run(name, func(t *testing.T) {
			k := embedded.kit(t)
			p := k.transactional()
			require.NoError(t, p.Initialize(k.ctx()))
			require.NoError(t, p.Begin(k.ctx()))
			require.NoError(t, p.ProduceSync(k.ctx(), k.rec(0, "a")).FirstErr())
			down(k.net)
			var out promised
			for i := range 100 {
				p.Produce(k.ctx(), k.rec(i%parts, "b"), out.promise)
			}
			ctx, cancel := contextFor(2 * time.Second)
			defer cancel()
			begun := time.Now()
			require.Error(t, p.Close(ctx))
			require.Less(t, time.Since(begun), 5*time.Second)
			require.Eventually(t, func() bool { return p.BufferedProduceRecords() == 0 }, 10*time.Second, time.Millisecond, "promises run")
			require.Len(t, out.errs, 100)
			k.nc.Close()
		})
	}
}

// The leader of a partition moves while records are being written.
func TestLeaderMoves(t *testing.T) {
	k := embedded.kit(t)
	s := k.session()
	p := k.producer(s, kgo.ProducerBatchMaxBytes(1024))
	want := make([][]string, parts)
	for round := range 5 {
		require.NoError(t, s.Begin(k.ctx()))
		var out promised
		for i, v := range numbered(fmt.Sprintf("r%d-", round), 1000) {
			p.Produce(k.ctx(), k.rec(0, v), out.promise)
			want[0] = append(want[0], v)
			if i == 500 {
				require.NoError(t, k.fake.MoveTopicPartition(k.topic, 0, int32(round%3)))
			}
		}
		require.NoError(t, s.Commit(k.ctx()))
		out.require(t, 1000, nil)
	}
	require.Equal(t, want, k.committed())
}

// Leaders move from node to node under load, on three nodes: every committed
// record is there once and in order.
func TestLeadersMoveOnThreeNodes(t *testing.T) {
	c := kafkatest.Shared(t, kafkatest.ThreeNodes())
	k := backend{real: spec(kafkatest.ThreeNodes())}.kit(t)
	s := k.session()
	p := k.producer(s, kgo.ProducerBatchMaxBytes(4096))
	var moves atomic.Int32
	moved := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				moved <- nil
				return
			default:
			}
			if err := c.MoveLeader(k.ctx(), k.topic, int32(i%parts), 1+(i/parts+i)%3); err != nil {
				moved <- err
				return
			}
			moves.Add(1)
		}
	}()
	want := make([][]string, parts)
	for round := 0; moves.Load() < 5 || round < 20; round++ {
		require.NoError(t, s.Begin(k.ctx()))
		var out promised
		for i, v := range numbered(fmt.Sprintf("r%d-", round), 800) {
			p.Produce(k.ctx(), k.rec(i%parts, v), out.promise)
			want[i%parts] = append(want[i%parts], v)
		}
		require.NoError(t, s.Commit(k.ctx()))
		out.require(t, 800, nil)
	}
	close(stop)
	require.NoError(t, <-moved)
	require.Equal(t, want, k.committed())
}
