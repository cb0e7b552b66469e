package txnsession_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/txnsession"
)

// Two groups' offsets are cut short: Commit waits for both.
func TestEachSendOffsetsThatWasCutShortBlocksCommit(t *testing.T) {
	for _, rules := range []int16{2, 0} {
		b := fakeBench(t, rules)
		c := newCell(t, b, &scenario{key: kmsg.TxnOffsetCommit}, fault{})
		ctx := tableContext(t)
		open(c, ctx)
		groups := []string{c.group, c.group + "-2"}
		send := func(ctx context.Context, group string) error {
			return c.s.SendOffsets(ctx, c.someOffsets(), txnsession.Unfenced(group))
		}
		for _, group := range groups {
			held := c.net.Inject(faultnet.Fault{Key: int16(kmsg.TxnOffsetCommit), Node: faultnet.Any, Action: faultnet.Delay})
			cut, cancel := context.WithCancel(ctx)
			go func() {
				_ = held.WaitHits(cut, 1)
				cancel()
			}()
			require.ErrorIs(t, send(cut, group), context.Canceled)
			require.Equal(t, 1, held.Hits())
			held.Remove()
		}
		c.refuses(c.s, "Commit", "Prepare")
		require.NoError(t, send(ctx, groups[1]))
		c.refuses(c.s, "Commit", "Prepare")
		require.NoError(t, c.s.SendOffsets(ctx, map[string]map[int32]kgo.EpochOffset{c.topic: {0: {Epoch: -1, Offset: 99}}},
			txnsession.Unfenced("a third")))
		c.refuses(c.s, "Commit", "Prepare")
		require.NoError(t, send(ctx, groups[0]))
		require.NoError(t, c.s.Commit(ctx))
		for _, group := range groups {
			require.EqualValues(t, firstOffset, b.committedOffset(t, group, c.topic))
		}
	}
}

// A topic that is gone is not waited for as long as the transaction lasts.
func TestAddPartitionsOfAMissingTopicIsGivenUp(t *testing.T) {
	t.Parallel()
	c := newCell(t, fakeBench(t, 0), &scenario{key: kmsg.AddPartitionsToTxn}, fault{})
	ctx := tableContext(t)
	open(c, ctx)
	err := c.s.AddPartitions(ctx, map[string][]int32{"gone": {0}})
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
	require.Equal(t, abortable|notCommitted, factsOf(err), "%v", err)
	require.NoError(t, c.s.Abort(ctx))
}
