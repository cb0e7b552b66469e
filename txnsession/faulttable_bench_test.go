package txnsession_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// bench is a cluster that many cells of the fault table share. Each cell has a
// topic, ids, a network and clients of its own.
type bench struct {
	seeds []string
	rules int16 // what sessions on it must find: 2 or 0
	opts  []kgo.Opt
	real  bool // an Apache Kafka
	node  int32
	raw   *kgo.Client // past the networks: makes topics and judges

	mu     sync.Mutex
	claims map[string]claim // by topic
}

// claim is what the sessions of a cell said, in the end, about its topic and
// its group.
type claim struct {
	cell    string
	values  []string
	group   string
	offset  int64 // -1: none committed
	decided bool  // the cell came to its end
}

// fakeBench starts an embedded cluster with the rules.
func fakeBench(t *testing.T, rules int16) *bench {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	b := benchOn(t, c.ListenAddrs(), rules)
	if rules < 2 {
		b.lowerRules(t)
	}
	return b
}

// cappedBench is an embedded cluster with the new rules whose users cap their
// versions below them.
func cappedBench(t *testing.T, caps kgo.Opt) *bench {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	b := benchOn(t, c.ListenAddrs(), 0)
	b.opts = []kgo.Opt{caps}
	return b
}

func benchOn(t *testing.T, seeds []string, rules int16) *bench {
	t.Helper()
	b := &bench{seeds: seeds, rules: rules, claims: make(map[string]claim)}
	raw, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(10*time.Millisecond))
	require.NoError(t, err)
	b.raw = raw
	t.Cleanup(raw.Close)
	meta, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), raw)
	require.NoError(t, err)
	require.Len(t, meta.Brokers, 1)
	b.node = meta.Brokers[0].NodeID
	return b
}

// lowerRules finalizes transaction.version 0.
func (b *bench) lowerRules(t *testing.T) {
	t.Helper()
	req := kmsg.NewPtrUpdateFeaturesRequest()
	f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	f.Feature, f.MaxVersionLevel, f.UpgradeType = "transaction.version", 0, 2
	req.FeatureUpdates = append(req.FeatureUpdates, f)
	resp, err := req.RequestWith(t.Context(), b.raw)
	require.NoError(t, err)
	require.Zero(t, resp.ErrorCode)
	for _, r := range resp.Results {
		require.Zero(t, r.ErrorCode)
	}
}

// topic makes a topic and waits until the cluster has its leaders.
func (b *bench) topic(t *testing.T, name string) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, 2, 1
	req.Topics = append(req.Topics, rt)
	ctx := tableContext(t)
	resp, err := req.RequestWith(ctx, b.raw)
	require.NoError(t, err)
	require.Zero(t, resp.Topics[0].ErrorCode)
	if !b.real {
		return
	}
	require.Eventually(t, func() bool {
		meta := kmsg.NewPtrMetadataRequest()
		mt := kmsg.NewMetadataRequestTopic()
		mt.Topic = kmsg.StringPtr(name)
		meta.Topics = append(meta.Topics, mt)
		resp, err := meta.RequestWith(ctx, b.raw)
		return err == nil && resp.Topics[0].ErrorCode == 0 && len(resp.Topics[0].Partitions) == 2 &&
			resp.Topics[0].Partitions[0].Leader == b.node && resp.Topics[0].Partitions[1].Leader == b.node
	}, 20*time.Second, 5*time.Millisecond, "the broker leads the partitions of the new topic")
}

func (b *bench) claim(topic string, c claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims[topic] = c
}

// judge compares every claim with what somebody else's reader sees: kgo, reading
// committed, up to the last stable offset, and the group's stable offsets.
func (b *bench) judge(t *testing.T) {
	t.Helper()
	if len(b.claims) == 0 {
		return // no cell was selected
	}
	topics := slices.Sorted(maps.Keys(b.claims))
	seen := b.readCommitted(t, topics)
	if b.real {
		// A commit is decided before its markers are written. The last record
		// of each topic is committed; once it is seen, so is all before it.
		deadline := time.Now().Add(30 * time.Second)
		for !b.settled(topics, seen) && time.Now().Before(deadline) {
			seen = b.readCommitted(t, topics)
		}
	}
	for _, name := range topics {
		c := b.claims[name]
		if !c.decided {
			continue // the cell has failed already
		}
		require.Equal(t, c.values, seen[name], "what a reader of %s sees", c.cell)
		require.Equal(t, c.offset, b.committedOffset(t, c.group, name), "the offset of the group of %s", c.cell)
	}
}

// settled reports whether as many records are visible as are claimed.
func (b *bench) settled(topics []string, seen map[string][]string) bool {
	for _, name := range topics {
		if c := b.claims[name]; c.decided && len(seen[name]) < len(c.values) {
			return false
		}
	}
	return true
}

// readCommitted reads partition 0 of each topic.
func (b *bench) readCommitted(t *testing.T, topics []string) map[string][]string {
	t.Helper()
	ctx := tableContext(t)
	ends := b.stableEnds(t, ctx, topics)
	from := make(map[string]map[int32]kgo.Offset, len(topics))
	for topic, end := range ends {
		if end > 0 {
			from[topic] = map[int32]kgo.Offset{0: kgo.NewOffset().AtStart()}
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.seeds...), kgo.DisableClientMetrics(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.ConsumePartitions(from), kgo.FetchMaxWait(100*time.Millisecond))
	require.NoError(t, err)
	defer cl.Close()
	seen := make(map[string][]string)
	for len(from) > 0 {
		fs := cl.PollFetches(ctx)
		require.NoError(t, fs.Err())
		fs.EachRecord(func(r *kgo.Record) {
			if r.Offset < ends[r.Topic] && !r.Attrs.IsControl() {
				seen[r.Topic] = append(seen[r.Topic], string(r.Value))
			}
			// The last record before the stable end is a marker: each cell
			// ends with a committed transaction.
			if r.Offset >= ends[r.Topic]-1 {
				delete(from, r.Topic)
			}
		})
	}
	return seen
}

func (b *bench) stableEnds(t *testing.T, ctx context.Context, topics []string) map[string]int64 {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel, req.ReplicaID = 1, -1
	for _, topic := range topics {
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Timestamp = -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := b.raw.Broker(int(b.node)).Request(ctx, req)
	require.NoError(t, err)
	ends := make(map[string]int64)
	for _, rt := range resp.(*kmsg.ListOffsetsResponse).Topics {
		require.Zero(t, rt.Partitions[0].ErrorCode)
		ends[rt.Topic] = rt.Partitions[0].Offset
	}
	return ends
}

// committedOffset is the group's offset of partition 0 once no transaction
// holds it back, -1 for none.
func (b *bench) committedOffset(t *testing.T, group, topic string) int64 {
	t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group = group
	gt := kmsg.NewOffsetFetchRequestGroupTopic()
	gt.Topic, gt.Partitions = topic, []int32{0}
	rg.Topics = append(rg.Topics, gt)
	req.Groups = append(req.Groups, rg)
	// Version 8 names topics by name.
	resp, err := b.raw.Broker(int(b.node)).Request(tableContext(t), offsetsByName{req})
	require.NoError(t, err)
	groups := resp.(*kmsg.OffsetFetchResponse).Groups
	require.Len(t, groups, 1)
	if len(groups[0].Topics) == 0 {
		return -1
	}
	require.Zero(t, groups[0].Topics[0].Partitions[0].ErrorCode)
	return groups[0].Topics[0].Partitions[0].Offset
}

type offsetsByName struct{ *kmsg.OffsetFetchRequest }

func (offsetsByName) MaxVersion() int16 { return 8 }

// tableContext bounds what a cell waits for when nothing is meant to end it.
func tableContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
