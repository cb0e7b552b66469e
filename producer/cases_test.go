package producer_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

// Eight partitions, a bump of the epoch with each end: every first batch is
// accepted, so it had sequence 0, and nothing else moves the epoch.
func TestB13_NoCascadeAfterEpochBumps(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		s := k.session()
		p := k.producer(s)
		inits := k.requests(kmsg.InitProducerID)
		for round := range 10 {
			require.NoError(t, s.Begin(k.ctx()))
			var out promised
			for i := range 80 {
				p.Produce(k.ctx(), k.rec(i%parts, fmt.Sprint(round)), out.promise)
			}
			require.NoError(t, p.Flush(k.ctx()))
			out.require(t, 80, nil)
			if round%2 == 0 {
				require.NoError(t, s.Commit(k.ctx()))
			} else {
				require.NoError(t, s.Abort(k.ctx()))
			}
		}
		require.Equal(t, inits, k.requests(kmsg.InitProducerID))
	})
}

// A partition that cannot be added fails the transaction, and loses nothing of
// those that were added before.
func TestB29_PartitionCannotBeAdded(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		if !k.old {
			return // no such request
		}
		s := k.session()
		p := k.producer(s)
		require.NoError(t, s.Begin(k.ctx()))
		require.NoError(t, p.ProduceSync(k.ctx(), k.rec(0, "a")).FirstErr())
		inj := k.net.Inject(faultnet.Fault{Key: int16(kmsg.AddPartitionsToTxn), Node: faultnet.Any, Action: faultnet.Answer, Code: kerr.TopicAuthorizationFailed.Code})
		require.ErrorIs(t, p.ProduceSync(k.ctx(), k.rec(1, "b")).FirstErr(), kerr.TopicAuthorizationFailed)
		require.Equal(t, 1, inj.Hits())
		require.Error(t, s.Commit(k.ctx()))
		require.Zero(t, k.requests(kmsg.EndTxn))
		require.NoError(t, s.Abort(k.ctx()))
		require.NotZero(t, k.requests(kmsg.EndTxn))
		require.Equal(t, make([][]string, parts), k.committed())

		require.NoError(t, s.Begin(k.ctx()))
		require.NoError(t, p.ProduceSync(k.ctx(), k.rec(0, "c"), k.rec(1, "d")).FirstErr())
		require.NoError(t, s.Commit(k.ctx()))
		require.Equal(t, [][]string{{"c"}, {"d"}, nil, nil}, k.committed())
	})
}

// Version caps of the user's below what the new rules need mean the old rules.
func TestB31_VersionCaps(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		caps := kversion.V4_0_0()
		caps.SetMaxKeyVersion(int16(kmsg.Produce), 11)
		k.nc = k.client(kgo.MaxVersions(caps))
		s := k.session()
		p := k.producer(s)
		for round := range 3 {
			require.NoError(t, s.Begin(k.ctx()))
			require.NoError(t, p.ProduceSync(k.ctx(), k.rec(0, fmt.Sprint(round)), k.rec(1, fmt.Sprint(round))).FirstErr())
			require.NoError(t, s.Commit(k.ctx()))
		}
		require.NotZero(t, k.requests(kmsg.AddPartitionsToTxn))
		for _, req := range k.net.Log() {
			if req.Key == int16(kmsg.Produce) {
				require.LessOrEqual(t, req.Version, int16(11))
			}
		}
		require.Equal(t, [][]string{{"0", "1", "2"}, {"0", "1", "2"}, nil, nil}, k.committed())
	})
}

// Tight transactions over many partitions: what the broker answers while the
// markers of the last one are written is nobody's failure.
func TestB38_BackToBackTransactions(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		s := k.session()
		p := k.producer(s)
		want := make([][]string, parts)
		for round := range 100 {
			require.NoError(t, s.Begin(k.ctx()))
			for i := range parts {
				v := fmt.Sprint(round)
				p.Produce(k.ctx(), k.rec(i, v), nil)
				want[i] = append(want[i], v)
			}
			require.NoError(t, s.Commit(k.ctx()))
		}
		require.Equal(t, want, k.committed())
	})
}

// lastWords is an application's participant that still produces in its Flush.
type lastWords struct {
	p    *producer.Producer
	r    *kgo.Record
	late chan error
}

func (l *lastWords) Flush(ctx context.Context) error {
	go func() { // anybody else is refused by now
		l.p.Produce(context.Background(), &kgo.Record{Topic: l.r.Topic}, func(_ *kgo.Record, err error) { l.late <- err })
	}()
	l.p.Produce(ctx, l.r, nil)
	return nil
}

func (*lastWords) Discard(context.Context) error { return nil }
func (*lastWords) Settle(txnsession.Verdict)     {}

func TestWorkInThePhaseWorkFlush(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		s := k.session()
		p := k.producer(s)
		require.NoError(t, s.Begin(k.ctx()))
		l := &lastWords{p: p, r: k.rec(2, "last words"), late: make(chan error, 1)}
		_, err := s.Enlist(l, txnsession.PhaseWork)
		require.NoError(t, err)
		require.NoError(t, s.Commit(k.ctx()))
		require.ErrorIs(t, <-l.late, txnsession.ErrState)
		require.Equal(t, [][]string{nil, nil, {"last words"}, nil}, k.committed())
	})
}

// Commit inside a promise waits for the promise, and ends by its context without
// having sent anything.
func TestCommitInsideAPromise(t *testing.T) {
	k := embedded.kit(t)
	s := k.session()
	p := k.producer(s)
	require.NoError(t, s.Begin(k.ctx()))
	inner := make(chan error, 1)
	p.Produce(k.ctx(), k.rec(0, "a"), func(*kgo.Record, error) {
		ctx, cancel := contextFor(50 * time.Millisecond)
		defer cancel()
		inner <- s.Commit(ctx)
	})
	err := <-inner
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, txnsession.NeverSent(err))
	require.NoError(t, s.Commit(k.ctx()))
	require.Equal(t, [][]string{{"a"}, nil, nil, nil}, k.committed())
}

// An abort does not wait for a connection that is still being made; what is
// encoded when it is there at last says nothing, to every kind of broker.
func TestAbortWhileConnecting(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		var block atomic.Bool
		var waiting atomic.Int32
		release := make(chan struct{})
		k.nc = k.client(netclient.ProduceLanes(2), kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if block.Load() {
				waiting.Add(1)
				select {
				case <-release:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return k.net.Dial(ctx, network, addr)
		}))
		// Another session has the metadata loaded, by the other lane.
		other, s := k.session(), k.session()
		q, p := k.producer(other), k.producer(s)
		require.NoError(t, other.Begin(k.ctx()))
		require.NoError(t, q.ProduceSync(k.ctx(), k.rec(0, "other")).FirstErr())
		require.NoError(t, other.Commit(k.ctx()))
		before := k.requests(kmsg.Produce)

		require.NoError(t, s.Begin(k.ctx()))
		block.Store(true)
		var out promised
		p.Produce(k.ctx(), k.rec(0, "aborted"), out.promise)
		require.Eventually(t, func() bool { return waiting.Load() > 0 }, 10*time.Second, time.Millisecond, "a connection is being made")
		begun := time.Now()
		require.NoError(t, s.Abort(k.ctx()))
		require.Less(t, time.Since(begun), 5*time.Second)
		out.require(t, 1, kgo.ErrAborting)
		require.Equal(t, before, k.requests(kmsg.Produce))
		block.Store(false)
		close(release)

		require.NoError(t, s.Begin(k.ctx()))
		require.NoError(t, p.ProduceSync(k.ctx(), k.rec(0, "committed")).FirstErr())
		require.NoError(t, s.Commit(k.ctx()))
		require.Equal(t, before+2, k.requests(kmsg.Produce), "the silent one and the next, on one connection")
		require.Equal(t, [][]string{{"other", "committed"}, nil, nil, nil}, k.committed())
	})
}
