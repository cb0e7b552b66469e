package txnsession_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/txnsession"
)

// What only a real broker can show.

func onReal(t *testing.T, s kafkatest.Spec) *kit {
	t.Helper()
	return backend{real: &s}.kit(t)
}

// B25, B26 on Kafka 4.4.0: two-phase commit with the unstable APIs switched on,
// without them, and with the broker's switch off.
func TestB26_TwoPhaseOnRealBrokers(t *testing.T) {
	t.Run("enabled", func(t *testing.T) {
		k := onReal(t, kafkatest.Prepared())
		s, _ := k.open("id", "r", txnsession.TwoPhaseCommit())
		require.Equal(t, int32(math.MaxInt32), k.describe("id").TimeoutMillis, "no time limit")
		p, err := s.Prepare(k.ctx(10 * time.Second))
		require.NoError(t, err)

		// A stock broker cannot keep it: refused before anything is sent.
		other := k.session("id", txnsession.TwoPhaseCommit())
		inits := k.requests(kmsg.InitProducerID)
		require.ErrorIs(t, other.InitializeKeepPrepared(k.ctx(10*time.Second)), txnsession.ErrTwoPhaseCommitUnsupported)
		require.Equal(t, inits, k.requests(kmsg.InitProducerID))
		require.Equal(t, "Ongoing", k.describe("id").State)

		v, err := k.resume(p).Complete(k.ctx(10*time.Second), p)
		require.NoError(t, err)
		require.Equal(t, txnsession.Committed, v)
		require.Equal(t, []string{"r"}, k.committed(0))
	})
	t.Run("stock", func(t *testing.T) {
		k := onReal(t, kafkatest.Latest())
		_, _ = k.open("id", "r")
		s := k.session("id", txnsession.TwoPhaseCommit())
		err := s.Initialize(k.ctx(10 * time.Second))
		require.ErrorIs(t, err, txnsession.ErrTwoPhaseCommitUnsupported)
		require.True(t, txnsession.NeverSent(err), err)
		require.Equal(t, "Ongoing", k.describe("id").State)
	})
	t.Run("broker's switch off", func(t *testing.T) {
		spec := kafkatest.Latest()
		spec.UnstableAPIs = true
		k := onReal(t, spec)
		s := k.session("id", txnsession.TwoPhaseCommit())
		err := s.Initialize(k.ctx(10 * time.Second))
		require.ErrorIs(t, err, kerr.TransactionalIDAuthorizationFailed)
		require.ErrorContains(t, err, "TWO_PHASE_COMMIT")
		require.ErrorContains(t, err, "transaction.two.phase.commit.enable")
		require.False(t, txnsession.IsFatal(err), err)
		require.Equal(t, txnsession.StateUninitialized, s.State())
	})
}

// The rightful owner stays the owner: a zombie's Initialize is refused by the
// coordinator itself (KIP-360).
func TestZombieOnRealBrokers(t *testing.T) {
	for _, b := range backends {
		if b.real == nil {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			k := b.kit(t)
			a := k.ready("id")
			owner, err := txnsession.New(k.client(), k.id("id"))
			require.NoError(t, err)
			require.NoError(t, owner.Initialize(k.ctx(10*time.Second)))
			err = a.Initialize(k.ctx(10 * time.Second))
			require.True(t, txnsession.IsFenced(err), err)
			require.NoError(t, owner.Begin(k.ctx(10*time.Second)))
			w := &rawWriter{k: k, s: owner}
			require.NoError(t, w.write(0, "mine"))
			require.NoError(t, owner.Commit(k.ctx(10*time.Second)))
			require.NoError(t, owner.Close(k.ctx(time.Second)))
			require.Equal(t, []string{"mine"}, k.committed(0))
		})
	}
}

// B35 with the consumer protocol of KIP-848: a member epoch that has moved
// either still counts or aborts once, cleanly; a member that has left is always
// refused.
func TestB35_MemberEpochs(t *testing.T) {
	k := onReal(t, kafkatest.Latest())
	group := k.id("group")
	member := func() *kgo.Client {
		cl, err := kgo.NewClient(kgo.SeedBrokers(k.seeds...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(k.topic),
			kgo.DisableAutoCommit(), kgo.ServerSideBalancer(), kgo.HeartbeatInterval(100*time.Millisecond))
		require.NoError(t, err)
		return cl
	}
	poll := func(cl *kgo.Client) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		cl.PollFetches(ctx)
	}
	one := member()
	defer one.Close()
	require.Eventually(t, func() bool { poll(one); return txnsession.GroupOf(one).Generation > 0 }, 30*time.Second, time.Millisecond, "the member joins")
	s := k.ready("id")
	offsets := map[string]map[int32]kgo.EpochOffset{k.topic: {0: {Offset: 0, Epoch: -1}}}
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.NoError(t, s.SendOffsets(k.ctx(10*time.Second), offsets, txnsession.GroupOf(one)))
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))

	stale := txnsession.GroupOf(one)
	two := member()
	require.Eventually(t, func() bool {
		poll(one)
		poll(two)
		return txnsession.GroupOf(one).Generation > stale.Generation
	}, 60*time.Second, time.Millisecond, "the member's epoch moves")
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	if err := s.SendOffsets(k.ctx(10*time.Second), offsets, stale); err != nil {
		require.True(t, txnsession.IsAbortable(err), err)
		require.NoError(t, s.Abort(k.ctx(10*time.Second)))
		require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	}
	require.NoError(t, s.SendOffsets(k.ctx(10*time.Second), offsets, txnsession.GroupOf(one)), "read at the call")
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))

	zombie := txnsession.GroupOf(two)
	two.Close() // leaves
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.Eventually(t, func() bool {
		err := s.SendOffsets(k.ctx(10*time.Second), offsets, zombie)
		if err == nil {
			return false
		}
		require.True(t, txnsession.IsAbortable(err), err)
		return true
	}, 30*time.Second, 50*time.Millisecond, "a member that has left is refused")
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
}
