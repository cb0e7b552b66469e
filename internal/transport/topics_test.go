package transport_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/transport"
)

func refresh(t *testing.T, c *transport.Client, names ...string) {
	t.Helper()
	select {
	case <-c.RefreshTopics(names...):
	case <-within(t).Done():
		t.Fatal("the refresh did not end")
	}
}

func TestTopic(t *testing.T) {
	e := start(t)
	require.Nil(t, e.c.CachedTopic("t"))
	topic, err := e.c.Topic(within(t), "t")
	require.NoError(t, err)
	require.NoError(t, topic.Err)
	require.Equal(t, "t", topic.Name)
	require.Equal(t, e.cluster.TopicInfo("t").TopicID, topic.ID)
	require.Len(t, topic.Partitions, 3)
	for p, part := range topic.Partitions {
		require.Equal(t, e.cluster.LeaderFor("t", int32(p)), part.Leader)
		require.NoError(t, part.Err)
	}
	require.Same(t, topic, e.c.CachedTopic("t"))
	again, err := e.c.Topic(within(t), "t")
	require.NoError(t, err)
	require.Same(t, topic, again)
	require.Equal(t, 1, e.nw.Requests(metadata))
}

func TestCachedTopicIsCheap(t *testing.T) {
	e := start(t)
	_, err := e.c.Topic(within(t), "t")
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(1000, func() { e.c.CachedTopic("t") }))
}

func TestMissingTopic(t *testing.T) {
	e := start(t, kfake.AllowAutoTopicCreation())
	topic, err := e.c.Topic(within(t), "missing")
	require.NoError(t, err)
	require.ErrorIs(t, topic.Err, kerr.UnknownTopicOrPartition)
	require.Nil(t, e.cluster.TopicInfo("missing"), "not created by asking")

	// It is asked for again, since it may have been made meanwhile.
	require.NoError(t, e.cluster.CreateTopic("missing", 2, nil))
	topic, err = e.c.Topic(within(t), "missing")
	require.NoError(t, err)
	require.NoError(t, topic.Err)
	require.Len(t, topic.Partitions, 2)

	creating := e.client(kgo.AllowAutoTopicCreation())
	topic, err = creating.Topic(within(t), "made by asking")
	require.NoError(t, err)
	require.NotNil(t, topic)
}

func TestTopicsAreLoadedTogether(t *testing.T) {
	e := start(t)
	held := e.fault(metadata, faultnet.Delay)
	var loading sync.WaitGroup
	load := func(name string) {
		loading.Go(func() {
			if _, err := e.c.Topic(within(t), name); err != nil {
				t.Error(err)
			}
		})
	}
	load("t")
	require.NoError(t, held.WaitHits(within(t), 1))
	for range 50 {
		load("t")
		load("u")
	}
	held.Release()
	loading.Wait()
	require.LessOrEqual(t, e.nw.Requests(metadata), 4)
}

func TestRefreshTopics(t *testing.T) {
	e := start(t)
	old, err := e.c.Topic(within(t), "t")
	require.NoError(t, err)
	leader := (old.Partitions[0].Leader + 1) % 3
	require.NoError(t, e.cluster.MoveTopicPartition("t", 0, leader))
	refresh(t, e.c, "t")
	topic := e.c.CachedTopic("t")
	require.NotSame(t, old, topic)
	require.Equal(t, leader, topic.Partitions[0].Leader)
	require.Greater(t, topic.Partitions[0].LeaderEpoch, old.Partitions[0].LeaderEpoch)
	require.True(t, topic.At.After(old.At))

	require.NoError(t, e.cluster.MoveTopicPartition("t", 0, (leader+1)%3))
	refresh(t, e.c)
	require.Equal(t, (leader+1)%3, e.c.CachedTopic("t").Partitions[0].Leader, "all in use, if none is named")

	// A refresh that a request is under way for must not be answered by it.
	held := e.fault(metadata, faultnet.Delay)
	first := e.c.RefreshTopics("t")
	require.NoError(t, held.WaitHits(within(t), 1))
	require.NoError(t, e.cluster.MoveTopicPartition("t", 0, leader))
	second := e.c.RefreshTopics("t")
	held.Release()
	<-first
	<-second
	require.Equal(t, leader, e.c.CachedTopic("t").Partitions[0].Leader)
}

func TestTopicSurvivesFaults(t *testing.T) {
	t.Run("an answer without the topic", func(t *testing.T) {
		e := start(t)
		odd := e.fault(metadata, faultnet.Rewrite, edit(func(_ kmsg.Request, resp kmsg.Response) {
			resp.(*kmsg.MetadataResponse).Topics = nil
		}))
		topic, err := e.c.Topic(within(t), "t")
		require.NoError(t, err)
		require.Len(t, topic.Partitions, 3)
		require.Equal(t, 1, odd.Hits())
		require.NotEmpty(t, e.retried())
	})
	t.Run("partitions that make no sense", func(t *testing.T) {
		e := start(t)
		e.fault(metadata, faultnet.Rewrite, edit(func(_ kmsg.Request, resp kmsg.Response) {
			r := resp.(*kmsg.MetadataResponse)
			ps := r.Topics[0].Partitions
			for i := range ps {
				switch ps[i].Partition {
				case 0:
					ps[i].Partition = 5
				case 1:
					ps[i].Leader = -1
				case 2:
					ps[i].ErrorCode = kerr.ReplicaNotAvailable.Code
				}
			}
			nameless := kmsg.NewMetadataResponseTopic()
			r.Topics = append(r.Topics, nameless)
		}))
		topic, err := e.c.Topic(within(t), "t")
		require.NoError(t, err)
		require.Len(t, topic.Partitions, 3)
		require.ErrorIs(t, topic.Partitions[0].Err, kerr.UnknownTopicOrPartition)
		require.ErrorIs(t, topic.Partitions[1].Err, kerr.LeaderNotAvailable)
		require.ErrorIs(t, topic.Partitions[2].Err, kerr.ReplicaNotAvailable)
	})
	t.Run("brokers that are down", func(t *testing.T) {
		e := start(t)
		down := e.fault(faultnet.Any, faultnet.Refuse, times(faultnet.Forever))
		ctx, cancel := context.WithCancel(within(t))
		failed := make(chan error, 1)
		go func() { _, err := e.c.Topic(ctx, "t"); failed <- err }()
		require.NoError(t, down.WaitHits(within(t), 2))
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		down.Remove()
		_, err := e.c.Topic(within(t), "t")
		require.NoError(t, err)
	})
	t.Run("a client that is closed", func(t *testing.T) {
		e := start(t)
		e.c.Close()
		_, err := e.c.Topic(within(t), "t")
		require.ErrorIs(t, err, kgo.ErrClientClosed)
		refresh(t, e.c)
	})
	t.Run("a client that closes", func(t *testing.T) {
		e := start(t)
		held := e.fault(metadata, faultnet.Delay)
		failed := make(chan error, 1)
		go func() { _, err := e.c.Topic(within(t), "t"); failed <- err }()
		require.NoError(t, held.WaitHits(within(t), 1))
		e.c.Close()
		require.ErrorIs(t, <-failed, kgo.ErrClientClosed)
	})
}

func TestTopicOfOldBrokers(t *testing.T) {
	e := start(t, kfake.MaxVersions(kversion.V0_11_0()))
	topic, err := e.c.Topic(within(t), "t")
	require.NoError(t, err)
	require.Zero(t, topic.ID)
	require.Len(t, topic.Partitions, 3)
}

func TestLeaderHint(t *testing.T) {
	e := start(t)
	e.c.LeaderHint("t", 0, 1, 100)
	require.Nil(t, e.c.CachedTopic("t"), "nothing to hint at yet")
	old, err := e.c.Topic(within(t), "t")
	require.NoError(t, err)
	epoch := old.Partitions[0].LeaderEpoch
	leader := (old.Partitions[0].Leader + 1) % 3

	for name, hint := range map[string][3]int32{ // partition, leader, epoch
		"not newer":    {0, leader, epoch},
		"older":        {0, leader, epoch - 1},
		"no leader":    {0, -1, epoch + 1},
		"no partition": {3, leader, epoch + 1},
		"negative":     {-1, leader, epoch + 1},
	} {
		e.c.LeaderHint("t", hint[0], hint[1], hint[2])
		require.Same(t, old, e.c.CachedTopic("t"), name)
	}

	e.c.LeaderHint("t", 0, leader, epoch+2)
	require.Equal(t, transport.Partition{Leader: leader, LeaderEpoch: epoch + 2}, e.c.CachedTopic("t").Partitions[0])
	require.Equal(t, old.Partitions[1:], e.c.CachedTopic("t").Partitions[1:])
	require.Equal(t, epoch, old.Partitions[0].LeaderEpoch, "a topic never changes")

	// Neither an older hint nor a broker that does not know yet undoes it.
	e.c.LeaderHint("t", 0, old.Partitions[0].Leader, epoch+1)
	refresh(t, e.c, "t")
	require.Equal(t, epoch+2, e.c.CachedTopic("t").Partitions[0].LeaderEpoch)
	// One that knows more ends it.
	for range 3 {
		require.NoError(t, e.cluster.MoveTopicPartition("t", 0, old.Partitions[0].Leader))
	}
	refresh(t, e.c, "t")
	require.Equal(t, old.Partitions[0].Leader, e.c.CachedTopic("t").Partitions[0].Leader)
}

func TestLeaderHintEndsWithTheTopic(t *testing.T) {
	e := start(t)
	old, err := e.c.Topic(within(t), "t")
	require.NoError(t, err)
	e.c.LeaderHint("t", 0, 1, 1000)
	require.NoError(t, e.cluster.DeleteTopic("t"))
	require.NoError(t, e.cluster.CreateTopic("t", 3, nil))
	refresh(t, e.c, "t")
	topic := e.c.CachedTopic("t")
	require.NotEqual(t, old.ID, topic.ID)
	require.Less(t, topic.Partitions[0].LeaderEpoch, int32(1000))
}
