package proof_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/txnsession"
)

// A transaction that Java's producer began and left open is committed by a
// session that knows its id, producer id and epoch, and nothing else.
func TestJavaBeginsAndASessionCommits(t *testing.T) {
	k := onReal(t, kafkatest.Latest(), 1)
	nc := k.client()
	id := kafkatest.UniqueID(t)
	open, err := kafkatest.JavaOpenTxn(k.ctx(), k.real, id, k.topic, 100)
	require.NoError(t, err)
	require.Empty(t, k.committed())

	s, err := txnsession.Resume(nc, open.TransactionalID, open.ProducerID, open.Epoch)
	require.NoError(t, err)
	require.NoError(t, s.Commit(k.ctx()))
	require.Equal(t, txnsession.StateClosed, s.State())
	require.Equal(t, 1, k.requests(kmsg.EndTxn))
	require.Zero(t, k.requests(kmsg.InitProducerID), "it does not fence the writer")

	want := numbered("java-", 100)
	require.Equal(t, want, values(k.committed()))
	java, err := kafkatest.JavaRead(k.ctx(), k.real, k.topic)
	require.NoError(t, err)
	require.Equal(t, want, java)
	console, err := kafkatest.ConsoleConsume(k.ctx(), k.real, k.topic)
	require.NoError(t, err)
	require.Equal(t, want, console)

	// Java goes on under the id, and what it leaves open then can be aborted.
	next, err := kafkatest.JavaOpenTxn(k.ctx(), k.real, id, k.topic, 1)
	require.NoError(t, err)
	again, err := txnsession.Resume(nc, next.TransactionalID, next.ProducerID, next.Epoch)
	require.NoError(t, err)
	require.NoError(t, again.Abort(k.ctx()))
	require.Equal(t, want, values(k.committed()))
}

// What a session prepared is committed by the producer that Flink's committer
// revives. The writer then calls the same end itself, which finds it done, and
// goes on. Flink's EndTxn is one of the old rules, so that the next epoch takes
// the writer an InitProducerId.
func TestASessionPreparesAndFlinkCommits(t *testing.T) {
	k := onReal(t, kafkatest.Latest(), 1)
	s := k.ready(k.client())
	p := k.producer(s)
	var want []string
	for _, v := range []string{"first", "second"} {
		require.NoError(t, s.Begin(k.ctx()))
		p.Produce(k.ctx(), record(0, v), nil)
		txn, err := s.Prepare(k.ctx())
		require.NoError(t, err)
		require.Equal(t, want, values(k.committed()))
		want = append(want, v)

		require.NoError(t, kafkatest.FlinkCommit(k.ctx(), k.real, kafkatest.OpenTxn{
			TransactionalID: txn.TransactionalID, ProducerID: txn.ProducerID, Epoch: txn.ProducerEpoch,
		}))
		require.Equal(t, want, values(k.committed()))
		require.Equal(t, txnsession.StatePrepared, s.State())
		require.NoError(t, s.Commit(k.ctx()))
		require.Equal(t, txnsession.StateReady, s.State())
	}
	k.open(s, p, "third")
	require.NoError(t, s.Commit(k.ctx()))
	require.Equal(t, append(want, "third"), values(k.committed()))
}

// Below transaction.version 2 the triple does not name one transaction: it is
// refused without a request unless the caller takes that on.
func TestJavaBeginsUnderOldRules(t *testing.T) {
	k := onReal(t, kafkatest.OldRules(), 1)
	nc := k.client()
	open, err := kafkatest.JavaOpenTxn(k.ctx(), k.real, kafkatest.UniqueID(t), k.topic, 3)
	require.NoError(t, err)
	s, err := txnsession.Resume(nc, open.TransactionalID, open.ProducerID, open.Epoch)
	require.NoError(t, err)
	require.ErrorIs(t, s.Commit(k.ctx()), txnsession.ErrTransactionVersion)
	require.Equal(t, txnsession.StatePrepared, s.State())
	require.NoError(t, s.Close(k.ctx()))
	require.Zero(t, k.requests(kmsg.EndTxn))
	require.Empty(t, k.committed())

	s, err = txnsession.Resume(nc, open.TransactionalID, open.ProducerID, open.Epoch, txnsession.AllowResumeOldRules())
	require.NoError(t, err)
	require.NoError(t, s.Commit(k.ctx()))
	require.Equal(t, numbered("java-", 3), values(k.committed()))
}
