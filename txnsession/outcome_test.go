package txnsession_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/txnsession"
)

func (k *kit) prepared(id, value string) (*txnsession.Session, txnsession.PreparedTxn) {
	k.t.Helper()
	s, _ := k.open(id, value)
	p, err := s.Prepare(k.ctx(10 * time.Second))
	require.NoError(k.t, err)
	return s, p
}

func (k *kit) resume(p txnsession.PreparedTxn) *txnsession.Session {
	k.t.Helper()
	r, err := txnsession.ResumePrepared(k.nc, p)
	require.NoError(k.t, err)
	k.t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// The case that no other client can tell: the commit succeeded, its answer was
// lost, another owner came, and the commit is tried again.
func TestOutcomeAfterAnotherOwnerCame(t *testing.T) { each(t, testOutcomeAfterAnotherOwnerCame) }

func testOutcomeAfterAnotherOwnerCame(t *testing.T, b backend) {
	for _, committed := range []bool{true, false} {
		k := b.kit(t)
		_, p := k.prepared("id", "r")
		if committed {
			require.NoError(t, k.resume(p).Commit(k.ctx(10*time.Second)))
		}
		require.NoError(t, k.takeOver("id").Close(k.ctx(time.Second)))
		k.inject(kmsg.EndTxn, faultnet.Answer, forever, kerr.ProducerFenced.Code)

		r := k.resume(p)
		err := r.Commit(k.ctx(10 * time.Second))
		out, oerr := r.Outcome(k.ctx(10 * time.Second))
		require.NoError(t, oerr)
		require.Equal(t, "marker", out.Evidence.Source)
		if committed {
			require.NoError(t, err, "the marker after the witness proves it")
			require.Equal(t, txnsession.Committed, out.Verdict)
			require.Equal(t, []string{"r"}, k.committed(0))
		} else {
			require.True(t, txnsession.IsNotCommitted(err), err)
			require.Equal(t, !b.old, txnsession.IsFenced(err), err)
			require.Equal(t, txnsession.Aborted, out.Verdict)
			require.Empty(t, k.committed(0))
		}
		require.Equal(t, txnsession.StateClosed, r.State())

		// Without a witness nobody can tell.
		p.Witness = txnsession.Witness{}
		r = k.resume(p)
		err = r.Commit(k.ctx(10 * time.Second))
		require.True(t, txnsession.IsOutcomeUnknown(err), err)
		if !b.old { // there nothing was sent: the id has another transaction now
			require.Equal(t, txnsession.StateCommitting, r.State())
		}
		out, oerr = r.Outcome(k.ctx(10 * time.Second))
		require.NoError(t, oerr)
		require.Equal(t, txnsession.Unknown, out.Verdict)
		require.Equal(t, "none", out.Evidence.Source)
		require.NotEmpty(t, out.Evidence.Text)
	}
}

func TestOutcomeInEachState(t *testing.T) {
	k := newKit(t)
	want := func(s *txnsession.Session, v txnsession.Verdict, source string) {
		t.Helper()
		out, err := s.Outcome(k.ctx(10 * time.Second))
		require.NoError(t, err)
		require.Equal(t, v, out.Verdict, "%+v", out)
		require.Equal(t, source, out.Evidence.Source, "%+v", out)
	}
	s := k.session("id")
	want(s, txnsession.Nothing, "none")
	require.NoError(t, s.Initialize(k.ctx(10*time.Second)))
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	want(s, txnsession.Open, "none")
	w := k.writer(s)
	require.NoError(t, w.write(0, "r"))
	want(s, txnsession.Open, "describe")
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	want(s, txnsession.Committed, "answer")
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.NoError(t, w.write(0, "r"))
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
	want(s, txnsession.Aborted, "answer")
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	want(s, txnsession.Nothing, "answer")
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.NoError(t, w.write(0, "r"))
	p, err := s.Prepare(k.ctx(10 * time.Second))
	require.NoError(t, err)
	want(s, txnsession.Open, "describe")
	r := k.resume(p)
	want(r, txnsession.Open, "describe")
	require.NoError(t, r.Commit(k.ctx(10*time.Second)))
	// kfake forgets at once; a broker has CompleteCommit for a while.
	want(s, txnsession.Committed, "marker")
	completed := k.state("id", "CompleteCommit", p.ProducerID, p.ProducerEpoch+1)
	want(s, txnsession.Committed, "describe")
	completed.Remove()
	for state, v := range map[string]txnsession.Verdict{
		"PrepareCommit": txnsession.Committed, "PrepareAbort": txnsession.Aborted, "CompleteAbort": txnsession.Aborted,
	} {
		told := k.state("id", state, p.ProducerID, p.ProducerEpoch+1)
		want(s, v, "describe")
		told.Remove()
		// At another epoch it is another transaction: the marker decides.
		told = k.state("id", state, p.ProducerID, p.ProducerEpoch+2)
		want(s, txnsession.Committed, "marker")
		told.Remove()
	}
	overflow := k.state("id", "CompleteAbort", p.ProducerID+1, 0)
	want(s, txnsession.Committed, "marker")
	overflow.Remove()
	// The writer calls the same end itself, adopts the epoch and goes on.
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
}

// A denial to look says so instead of guessing.
func TestOutcomeWithoutTheRights(t *testing.T) { each(t, testOutcomeWithoutTheRights) }

func testOutcomeWithoutTheRights(t *testing.T, b backend) {
	k := b.kit(t)
	_, p := k.prepared("id", "r")
	k.inject(kmsg.DescribeTransactions, faultnet.Answer, forever, kerr.TransactionalIDAuthorizationFailed.Code)
	k.inject(kmsg.Fetch, faultnet.Answer, forever, kerr.TopicAuthorizationFailed.Code)
	out, err := k.resume(p).Outcome(k.ctx(10 * time.Second))
	require.NoError(t, err)
	require.Equal(t, txnsession.Unknown, out.Verdict)
	require.Contains(t, out.Evidence.Text, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
	require.Contains(t, out.Evidence.Text, "TOPIC_AUTHORIZATION_FAILED")
}

func TestOutcomeEndsByContext(t *testing.T) { each(t, testOutcomeEndsByContext) }

func testOutcomeEndsByContext(t *testing.T, b backend) {
	k := b.kit(t)
	_, p := k.prepared("id", "r")
	k.inject(kmsg.DescribeTransactions, faultnet.Answer, forever, kerr.TransactionalIDNotFound.Code)
	k.inject(kmsg.Fetch, faultnet.Delay, forever, 0)
	_, err := k.resume(p).Outcome(k.ctx(100 * time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	k.net.Reset()
}

// The marker may be far behind the witness, in another piece of the log, and
// after markers of others.
func TestMarkerFarBehindTheWitness(t *testing.T) { each(t, testMarkerFarBehindTheWitness) }

func testMarkerFarBehindTheWitness(t *testing.T, b backend) {
	k := b.kit(t)
	_, p := k.prepared("id", "r")
	others, w := k.open("other", "x")
	require.NoError(t, others.Commit(k.ctx(10*time.Second)))
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(k.topic), kgo.ProducerBatchMaxBytes(600_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	defer cl.Close()
	for range 4 {
		require.NoError(t, cl.ProduceSync(k.ctx(10*time.Second), &kgo.Record{Value: make([]byte, 500_000)}).FirstErr())
	}
	_ = w
	require.NoError(t, k.resume(p).Commit(k.ctx(10*time.Second)))
	require.NoError(t, k.takeOver("id").Close(k.ctx(time.Second)))
	out, err := k.resume(p).Outcome(k.ctx(10 * time.Second))
	require.NoError(t, err)
	require.Equal(t, txnsession.Committed, out.Verdict, "%+v", out)
	require.Equal(t, "marker", out.Evidence.Source)
	require.Greater(t, k.requests(kmsg.Fetch), 1)
}
