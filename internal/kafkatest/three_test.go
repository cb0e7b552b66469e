package kafkatest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

func TestThreeNodes(t *testing.T) {
	t.Parallel()
	c := kafkatest.Own(t, kafkatest.ThreeNodes())
	ctx := bounded(t)
	topic := kafkatest.Topic(t, c, 1)
	cl := client(t, c.Opts())
	leader := func() int {
		req := kmsg.NewPtrMetadataRequest()
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(ctx, cl)
		require.NoError(t, err)
		return int(resp.Topics[0].Partitions[0].Leader)
	}
	for _, node := range []int{1, 2, 3, 3} {
		require.NoError(t, c.MoveLeader(ctx, topic, 0, node))
		require.Equal(t, node, leader())
	}
	require.Error(t, c.MoveLeader(ctx, topic, 7, 1), "no such partition")

	// Two bytes and four bytes in UTF-8, one unit and two in Java.
	id := "é😀" + kafkatest.UniqueID(t)
	for _, node := range []int{1, 2, 3} {
		require.NoError(t, c.MoveCoordinator(ctx, id, node))
		got, err := c.CoordinatorOf(ctx, id)
		require.NoError(t, err)
		require.Equal(t, node, got)
	}

	// The leader and coordinator dies: the others go on without it.
	txn := client(t, c.Opts(), kgo.TransactionalID(id))
	require.NoError(t, txn.BeginTransaction())
	produce(t, txn, topic, "before")
	require.NoError(t, c.Kill(3))
	produce(t, txn, topic, "after")
	require.NoError(t, txn.EndTransaction(ctx, kgo.TryCommit))
	got, err := kafkatest.ReadCommitted(ctx, c, topic)
	require.NoError(t, err)
	require.Equal(t, []string{"before", "after"}, values(got))
	require.NotEqual(t, 3, leader())

	require.NoError(t, c.Restart(ctx, 3))
	require.NoError(t, c.MoveLeader(ctx, topic, 0, 3))
	require.NoError(t, c.MoveCoordinator(ctx, id, 3))
	state, err := kafkatest.AwaitTxn(ctx, c, id)
	require.NoError(t, err)
	require.Equal(t, "CompleteCommit", state.State)
}
