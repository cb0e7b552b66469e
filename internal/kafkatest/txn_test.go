package kafkatest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

func TestReadersSeeWhatIsTheirs(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafkatest.Latest())
	topic := kafkatest.Topic(t, c, 1)
	id := kafkatest.UniqueID(t)
	cl := client(t, c.Opts(), kgo.TransactionalID(id))
	ctx := bounded(t)

	require.NoError(t, cl.BeginTransaction())
	produce(t, cl, topic, "committed-1", "committed-2")
	require.NoError(t, cl.EndTransaction(ctx, kgo.TryCommit))
	// The markers may still be on their way: the reader waits for them.
	got, err := kafkatest.ReadCommitted(ctx, c, topic)
	require.NoError(t, err)
	require.Equal(t, []string{"committed-1", "committed-2"}, values(got))

	require.NoError(t, cl.BeginTransaction())
	produce(t, cl, topic, "aborted")
	require.NoError(t, cl.EndTransaction(ctx, kgo.TryAbort))
	txn, err := kafkatest.AwaitTxn(ctx, c, id)
	require.NoError(t, err)
	require.Equal(t, "CompleteAbort", txn.State)
	got, err = kafkatest.ReadCommitted(ctx, c, topic)
	require.NoError(t, err)
	require.Equal(t, []string{"committed-1", "committed-2"}, values(got), "nothing behind the last record but what is not for a reader")

	require.NoError(t, cl.BeginTransaction())
	produce(t, cl, topic, "open")
	plain := client(t, c.Opts())
	produce(t, plain, topic, "behind")
	txn, err = kafkatest.DescribeTxn(ctx, c, id)
	require.NoError(t, err)
	require.Equal(t, "Ongoing", txn.State)
	require.Equal(t, map[string][]int32{topic: {0}}, txn.Topics)
	pid, epoch, err := cl.ProducerID(ctx)
	require.NoError(t, err)
	require.Equal(t, pid, txn.ProducerID)
	require.Equal(t, epoch, txn.Epoch)
	require.False(t, txn.Start.IsZero())

	got, err = kafkatest.ReadCommitted(ctx, c, topic)
	require.NoError(t, err)
	require.Equal(t, []string{"committed-1", "committed-2"}, values(got))
	got, err = kafkatest.ReadUncommitted(ctx, c, topic)
	require.NoError(t, err)
	require.Equal(t, []string{"committed-1", "committed-2", "aborted", "open", "behind"}, values(got))

	require.NoError(t, cl.EndTransaction(ctx, kgo.TryCommit))
	want := []string{"committed-1", "committed-2", "open", "behind"}
	java, err := kafkatest.JavaRead(ctx, c, topic)
	require.NoError(t, err)
	require.Equal(t, want, java)
	console, err := kafkatest.ConsoleConsume(ctx, c, topic)
	require.NoError(t, err)
	require.Equal(t, want, console)
}

func TestReadOfAnUnknownTopic(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafkatest.Latest())
	_, err := kafkatest.ReadCommitted(bounded(t), c, kafkatest.UniqueID(t))
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
}

func TestDescribeAnUnknownTxn(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafkatest.Latest())
	_, err := kafkatest.DescribeTxn(bounded(t), c, kafkatest.UniqueID(t))
	require.ErrorIs(t, err, kerr.TransactionalIDNotFound)
}

func TestJavaLeavesATransactionThatFlinkCommits(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafkatest.Latest())
	topic := kafkatest.Topic(t, c, 1)
	id := kafkatest.UniqueID(t)
	ctx := bounded(t)

	open, err := kafkatest.JavaOpenTxn(ctx, c, id, topic, 2)
	require.NoError(t, err)
	txn, err := kafkatest.DescribeTxn(ctx, c, id)
	require.NoError(t, err)
	require.Equal(t, "Ongoing", txn.State)
	require.Equal(t, kafkatest.OpenTxn{TransactionalID: id, ProducerID: txn.ProducerID, Epoch: txn.Epoch}, open)
	got, err := kafkatest.ReadCommitted(ctx, c, topic)
	require.NoError(t, err)
	require.Empty(t, got)

	require.NoError(t, kafkatest.FlinkCommit(ctx, c, open))
	got, err = kafkatest.ReadCommitted(ctx, c, topic)
	require.NoError(t, err)
	require.Equal(t, []string{"java-0", "java-1"}, values(got))

	open.Epoch = 1000
	require.Error(t, kafkatest.FlinkCommit(ctx, c, open), "a program that fails is an error")
}
