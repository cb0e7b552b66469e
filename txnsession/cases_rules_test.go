package txnsession_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/txnsession"
)

// B20: a replayed commit of an earlier transaction never commits a later one.
func TestB20_ReplayedCommit(t *testing.T) { each(t, testB20_ReplayedCommit) }

func testB20_ReplayedCommit(t *testing.T, b backend) {
	k := b.kit(t)
	s, w := k.open("id", "t1")
	p, err := s.Prepare(k.ctx(10 * time.Second))
	require.NoError(t, err)
	require.Equal(t, b.old, p.StartMillis != 0)
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.NoError(t, w.write(0, "t2"))

	r, err := txnsession.ResumePrepared(k.client(), p)
	require.NoError(t, err)
	err = r.Commit(k.ctx(5 * time.Second))
	require.Equal(t, []string{"t1"}, k.committed(0), "the transaction after the prepared one must stay open: %v", err)
	require.NoError(t, err, "the marker after the witness tells that the first was committed")
	require.NoError(t, r.Close(k.ctx(time.Second)))

	bare, err := txnsession.Resume(k.client(), k.id("id"), p.ProducerID, p.ProducerEpoch)
	require.NoError(t, err)
	err = bare.Commit(k.ctx(5 * time.Second))
	require.Error(t, err)
	require.Equal(t, b.old, errors.Is(err, txnsession.ErrTransactionVersion), err)
	require.Equal(t, []string{"t1"}, k.committed(0))
	require.NoError(t, bare.Close(k.ctx(time.Second)))
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
}

// B30: the broker registers a partition before it appends, so an end is sent
// although no Produce ever succeeded.
func TestB30_EndWithoutASuccess(t *testing.T) { each(t, testB30_EndWithoutASuccess) }

func testB30_EndWithoutASuccess(t *testing.T, b backend) {
	k := b.kit(t)
	s := k.ready("id")
	w := k.writer(s)
	epoch := s.ProducerEpoch()
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	txn, err := s.Enlist(w, txnsession.PhaseSend)
	require.NoError(t, err)
	_, err = txn.Own(k.ctx(10*time.Second), k.topic, [16]byte{}, 0)
	require.NoError(t, err)
	// A batch whose numbers do not begin at 0 is refused after the registration.
	_, err = k.produce(k.ctx(10*time.Second), k.id("id"), txn, 0, 7, "x")
	if err == nil {
		t.Log("an unknown producer may begin anywhere; the answer is lost instead")
		err = kerr.InvalidRecord
	}
	txn.Fail(&txnsession.Error{Op: "produce", Err: err})
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
	require.Equal(t, 1, k.requests(kmsg.EndTxn))
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.NoError(t, w.write(0, "ok"))
	require.Equal(t, epoch+1, w.txn.ProducerEpoch(), "by the end, or by the Initialize that old rules need")
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	require.Equal(t, []string{"ok"}, k.committed(0))
	k.decided()
	require.NotEqual(t, "Ongoing", k.describe("id").State, "no partition is left over")
}

// Under old rules a bare triple commits only where the risk is accepted.
func TestResumeUnderOldRules(t *testing.T) {
	k := newKit(t, oldRules(t))
	s, _ := k.open("id", "r")
	for _, allow := range []bool{false, true} {
		var opts []txnsession.Opt
		if allow {
			opts = append(opts, txnsession.AllowResumeOldRules())
		}
		r, err := txnsession.Resume(k.client(), k.id("id"), s.ProducerID(), s.ProducerEpoch(), opts...)
		require.NoError(t, err)
		err = r.Commit(k.ctx(10 * time.Second))
		if !allow {
			require.ErrorIs(t, err, txnsession.ErrTransactionVersion)
			require.Equal(t, txnsession.StatePrepared, r.State())
			require.Empty(t, k.committed(0))
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, r.Close(k.ctx(time.Second)))
	}
	require.Equal(t, []string{"r"}, k.committed(0))
}

// B29: a partition that could not be added takes nothing from those that were.
func TestB29_FailedAddPartitions(t *testing.T) {
	for _, how := range []string{"refused", "connection lost"} {
		t.Run(how, func(t *testing.T) {
			k := newKit(t, oldRules(t))
			s, w := k.open("id", "p0")
			if how == "refused" {
				k.inject(kmsg.AddPartitionsToTxn, faultnet.Answer, 1, kerr.TopicAuthorizationFailed.Code)
				require.ErrorIs(t, w.write(1, "p1"), kerr.TopicAuthorizationFailed)
				err := s.Commit(k.ctx(10 * time.Second))
				require.True(t, txnsession.IsNotCommitted(err) && txnsession.IsAbortable(err), err)
				require.NoError(t, s.Abort(k.ctx(10*time.Second)))
				require.Equal(t, 1, k.requests(kmsg.EndTxn))
				require.Empty(t, k.committed())
				require.NoError(t, s.Begin(k.ctx(10*time.Second)))
				require.NoError(t, w.write(0, "p0"))
			} else {
				cut := k.inject(kmsg.AddPartitionsToTxn, faultnet.CutAfter, 1, 0)
				defer func() { require.Equal(t, 1, cut.Hits()) }()
			}
			adds := k.requests(kmsg.AddPartitionsToTxn)
			require.NoError(t, w.write(1, "p1"))
			require.NoError(t, w.write(1, "p1 again"))
			require.NoError(t, w.write(0, "p0 again"))
			require.NoError(t, s.Commit(k.ctx(10*time.Second)))
			require.Equal(t, []string{"p0", "p0 again"}, k.committed(0))
			require.Equal(t, []string{"p1", "p1 again"}, k.committed(1))
			want := 1
			if how != "refused" {
				want = 2
			}
			require.Equal(t, want, k.requests(kmsg.AddPartitionsToTxn)-adds)
		})
	}
}

// B31: advertised versions say nothing about the rules. A cluster below
// transaction.version 2 and a client capped below the new requests use the old
// ones, until the first Begin after an upgrade, with one Initialize between.
func TestB31_RulesFollowTheFeature(t *testing.T) {
	versions := func(t *testing.T, k *kit) map[kmsg.Key]int16 {
		got := make(map[kmsg.Key]int16)
		for _, r := range k.net.Log() {
			got[kmsg.Key(r.Key)] = r.Version
		}
		return got
	}
	run := func(t *testing.T, k *kit, s *txnsession.Session, w *rawWriter, v string) {
		require.NoError(t, s.Begin(k.ctx(10*time.Second)))
		require.NoError(t, w.write(0, v))
		require.NoError(t, s.SendOffsets(k.ctx(10*time.Second), map[string]map[int32]kgo.EpochOffset{k.topic: {0: {Offset: 1, Epoch: -1}}}, txnsession.Unfenced("g")))
		require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	}
	t.Run("capped client", func(t *testing.T) {
		k := newKit(t)
		caps := kversion.Stable()
		caps.SetMaxKeyVersion(int16(kmsg.Produce), 11)
		k.nc = k.client(kgo.MaxVersions(caps))
		s := k.ready("id")
		run(t, k, s, k.writer(s), "a")
		got := versions(t, k)
		require.LessOrEqual(t, got[kmsg.EndTxn], int16(4))
		require.LessOrEqual(t, got[kmsg.TxnOffsetCommit], int16(4))
		require.Contains(t, got, kmsg.AddPartitionsToTxn)
		require.Contains(t, got, kmsg.AddOffsetsToTxn)
		require.Equal(t, []string{"a"}, k.committed(0))
	})
	t.Run("upgrade", func(t *testing.T) {
		k := newKit(t)
		k.feature(0)
		s := k.ready("id")
		w := k.writer(s)
		epoch := s.ProducerEpoch()
		run(t, k, s, w, "a")
		require.Equal(t, int16(4), versions(t, k)[kmsg.EndTxn])
		require.Equal(t, epoch, s.ProducerEpoch(), "old rules keep the epoch")
		k.feature(2)
		inits := k.requests(kmsg.InitProducerID)
		run(t, k, s, w, "b")
		run(t, k, s, w, "c")
		require.Equal(t, 1, k.requests(kmsg.InitProducerID)-inits, "one Initialize at the switch")
		require.Equal(t, int16(5), versions(t, k)[kmsg.EndTxn])
		require.Equal(t, []string{"a", "b", "c"}, k.committed(0))
	})
}

// feature finalizes transaction.version at the cluster.
func (k *kit) feature(level int16) {
	k.t.Helper()
	req := kmsg.NewPtrUpdateFeaturesRequest()
	f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	f.Feature, f.MaxVersionLevel, f.UpgradeType, f.AllowDowngrade = "transaction.version", level, 2, true
	if level >= 2 {
		f.UpgradeType = 1
	}
	req.FeatureUpdates = append(req.FeatureUpdates, f)
	resp, err := req.RequestWith(k.ctx(10*time.Second), k.raw)
	require.NoError(k.t, err)
	require.Zero(k.t, resp.ErrorCode, "%+v", resp)
}

// B34: refusals that have to do with the group's members are abortable, all
// alike, and not retried.
func TestB34_GroupErrors(t *testing.T) {
	k := newKit(t)
	s := k.ready("id")
	offsets := map[string]map[int32]kgo.EpochOffset{k.topic: {0: {Offset: 1, Epoch: -1}}}
	group := txnsession.GroupMetadata{Group: "g", MemberID: "m", Generation: 1}
	for _, code := range []*kerr.Error{
		kerr.StaleMemberEpoch, kerr.GroupIDNotFound, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.FencedInstanceID,
	} {
		require.NoError(t, s.Begin(k.ctx(10*time.Second)))
		refused := k.inject(kmsg.TxnOffsetCommit, faultnet.Answer, forever, code.Code)
		err := s.SendOffsets(k.ctx(10*time.Second), offsets, group)
		require.ErrorIs(t, err, code)
		require.True(t, txnsession.IsAbortable(err) && txnsession.IsNotCommitted(err), err)
		require.Equal(t, 1, refused.Hits(), "%s is not retried", code.Message)
		refused.Remove()
		require.True(t, txnsession.IsNotCommitted(s.Commit(k.ctx(time.Second))))
		require.NoError(t, s.Abort(k.ctx(10*time.Second)))
	}
	// An unknown topic id is refreshed and retried.
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	once := k.inject(kmsg.TxnOffsetCommit, faultnet.Answer, 1, kerr.UnknownTopicID.Code)
	require.NoError(t, s.SendOffsets(k.ctx(10*time.Second), offsets, txnsession.Unfenced("g")))
	require.Equal(t, 1, once.Hits())
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	// The fenced pair ends the session.
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	k.inject(kmsg.TxnOffsetCommit, faultnet.Answer, 1, kerr.ProducerFenced.Code)
	err := s.SendOffsets(k.ctx(10*time.Second), offsets, group)
	require.True(t, txnsession.IsFenced(err), err)
	require.Equal(t, txnsession.StateFatalError, s.State())
}

// B35: empty metadata is refused unless it is Unfenced.
func TestB35_EmptyGroupMetadata(t *testing.T) { each(t, testB35_EmptyGroupMetadata) }

func testB35_EmptyGroupMetadata(t *testing.T, b backend) {
	k := b.kit(t)
	s, _ := k.open("id", "r")
	offsets := map[string]map[int32]kgo.EpochOffset{k.topic: {0: {Offset: 1, Epoch: -1}}}
	nobody, err := kgo.NewClient(kgo.SeedBrokers(k.seeds...))
	require.NoError(t, err)
	defer nobody.Close()
	commits := k.requests(kmsg.TxnOffsetCommit)
	for _, g := range []txnsession.GroupMetadata{{}, {Group: "g"}, txnsession.GroupOf(nobody), txnsession.Unfenced("")} {
		err := s.SendOffsets(k.ctx(time.Second), offsets, g)
		require.Error(t, err, "%+v", g)
		require.True(t, txnsession.NeverSent(err), err)
	}
	require.Equal(t, commits, k.requests(kmsg.TxnOffsetCommit))
	require.Equal(t, txnsession.StateInTransaction, s.State())
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
}

// B35: a member's metadata goes out as it is; a zombie's is refused.
func TestB35_ZombieMember(t *testing.T) {
	k := newKit(t)
	s := k.ready("id")
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.seeds...), kgo.ConsumerGroup("g"), kgo.ConsumeTopics(k.topic), kgo.DisableAutoCommit(), kgo.InstanceID("i"))
	require.NoError(t, err)
	defer cl.Close()
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		cl.PollFetches(ctx)
		return txnsession.GroupOf(cl).MemberID != ""
	}, 20*time.Second, time.Millisecond, "the consumer joins its group")
	offsets := map[string]map[int32]kgo.EpochOffset{k.topic: {0: {Offset: 0, Epoch: -1}}}
	g := txnsession.GroupOf(cl)
	require.Equal(t, "g", g.Group)
	require.Equal(t, "i", *g.InstanceID)
	require.NoError(t, s.SendOffsets(k.ctx(10*time.Second), offsets, g))
	g.Generation += 5
	err = s.SendOffsets(k.ctx(10*time.Second), offsets, g)
	require.True(t, txnsession.IsAbortable(err), err)
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
}

// B36: without offsets no group call is made; with offsets the context ends it.
func TestB36_OffsetsEndByContext(t *testing.T) { each(t, testB36_OffsetsEndByContext) }

func testB36_OffsetsEndByContext(t *testing.T, b backend) {
	k := b.kit(t)
	s, _ := k.open("id", "r")
	require.NoError(t, s.SendOffsets(k.ctx(time.Second), nil, txnsession.Unfenced("g")))
	require.NoError(t, s.SendOffsets(k.ctx(time.Second), map[string]map[int32]kgo.EpochOffset{k.topic: {}}, txnsession.Unfenced("g")))
	require.Zero(t, k.requests(kmsg.TxnOffsetCommit))
	offsets := map[string]map[int32]kgo.EpochOffset{k.topic: {0: {Offset: 1, Epoch: -1}}}
	k.inject(kmsg.TxnOffsetCommit, faultnet.CutBefore, forever, 0)
	began := time.Now()
	err := s.SendOffsets(k.ctx(200*time.Millisecond), offsets, txnsession.Unfenced("g"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 5*time.Second)
	require.Less(t, k.requests(kmsg.TxnOffsetCommit), 200, "no busy loop")
	require.Equal(t, txnsession.StateInTransaction, s.State())

	// It was cut short: no commit without it.
	for range 2 {
		err = s.Commit(k.ctx(time.Second))
		require.ErrorIs(t, err, txnsession.ErrState)
		require.False(t, txnsession.IsNotCommitted(err), err)
	}
	_, err = s.Prepare(k.ctx(time.Second))
	require.ErrorIs(t, err, txnsession.ErrState)
	require.Zero(t, k.requests(kmsg.EndTxn))
	k.net.Reset()
	require.NoError(t, s.SendOffsets(k.ctx(10*time.Second), map[string]map[int32]kgo.EpochOffset{k.topic: {0: {Offset: 2, Epoch: -1}}}, txnsession.Unfenced("g")))
	require.ErrorIs(t, s.Commit(k.ctx(time.Second)), txnsession.ErrState, "other offsets are no repetition")
	require.NoError(t, s.SendOffsets(k.ctx(10*time.Second), offsets, txnsession.Unfenced("g")))
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	require.Equal(t, []string{"r"}, k.committed(0))
}
