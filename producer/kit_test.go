package producer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(kafkatest.Main(m)) }

// backend is one kind of cluster that the suite runs on.
type backend struct {
	name string
	old  bool // old rules
	real *kafkatest.Spec
}

func spec(s kafkatest.Spec) *kafkatest.Spec { return &s }

var (
	embedded = backend{name: "embedded"}
	backends = []backend{
		embedded,
		{name: "embedded old rules", old: true},
		{name: "kafka 4.4.0", real: spec(kafkatest.Latest())},
		{name: "kafka 4.4.0 old rules", old: true, real: spec(kafkatest.OldRules())},
		{name: "kafka 3.9", old: true, real: spec(kafkatest.Kafka39())},
	}
)

// each runs a test on every kind of cluster.
func each(t *testing.T, test func(*kit)) {
	t.Helper()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) { test(b.kit(t)) })
	}
}

// kit is a cluster behind a network that breaks on command.
type kit struct {
	t     *testing.T
	old   bool
	seeds []string
	net   *faultnet.Net
	nc    *netclient.Client
	raw   *kgo.Client // not through the network: the judge
	fake  *kfake.Cluster
	topic string
	ids   []string
}

const parts = 4

func (b backend) kit(t *testing.T) *kit {
	t.Helper()
	k := &kit{t: t, old: b.old, net: faultnet.New(), topic: "t"}
	if b.real != nil {
		c := kafkatest.Shared(t, *b.real) // skips where there is no Java
		k.seeds, k.topic = c.Seeds(), kafkatest.Topic(t, c, parts)
	} else {
		opts := []kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(parts, k.topic)}
		if b.old {
			opts = append(opts, kfake.MaxVersions(kversion.V3_9_0()))
		}
		c, err := kfake.NewCluster(opts...)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		k.seeds, k.fake = c.ListenAddrs(), c
	}
	t.Cleanup(func() { k.net.Close() })
	k.nc = k.client()
	raw, err := kgo.NewClient(kgo.SeedBrokers(k.seeds...), kgo.DisableClientMetrics())
	require.NoError(t, err)
	t.Cleanup(raw.Close)
	k.raw = raw
	return k
}

func (k *kit) client(opts ...kgo.Opt) *netclient.Client {
	k.t.Helper()
	nc, err := netclient.New(append([]kgo.Opt{
		kgo.SeedBrokers(k.seeds...), kgo.Dialer(k.net.Dial),
		kgo.RetryBackoffFn(func(n int) time.Duration { return min(20*time.Millisecond<<min(n, 5), 300*time.Millisecond) }),
	}, opts...)...)
	require.NoError(k.t, err)
	k.t.Cleanup(nc.Close)
	return nc
}

func (k *kit) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	k.t.Cleanup(cancel)
	return ctx
}

// session returns an initialised session.
func (k *kit) session(opts ...txnsession.Opt) *txnsession.Session {
	k.t.Helper()
	s, err := txnsession.New(k.nc, k.id(), opts...)
	require.NoError(k.t, err)
	k.t.Cleanup(func() { _ = s.Close(context.Background()) })
	require.NoError(k.t, s.Initialize(k.ctx()))
	return s
}

// id returns a transactional id of this test's own.
func (k *kit) id() string {
	k.ids = append(k.ids, kafkatest.UniqueID(k.t))
	return k.ids[len(k.ids)-1]
}

func (k *kit) producer(s *txnsession.Session, opts ...kgo.ProducerOpt) *producer.Producer {
	k.t.Helper()
	p, err := producer.New(s, append([]kgo.ProducerOpt{kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	require.NoError(k.t, err)
	return p
}

func (k *kit) rec(partition int, value string) *kgo.Record {
	return &kgo.Record{Topic: k.topic, Partition: int32(partition), Value: []byte(value)}
}

// committed reads what a reader that is not ours sees, partition by partition.
func (k *kit) committed() [][]string {
	k.t.Helper()
	return k.read(kgo.ReadCommitted())
}

func (k *kit) read(level kgo.IsolationLevel) [][]string {
	k.t.Helper()
	k.settled()
	offsets := make(map[int32]kgo.Offset, parts)
	adm := kadm.NewClient(k.raw)
	var ends kadm.ListedOffsets
	require.EventuallyWithT(k.t, func(c *assert.CollectT) {
		var err error
		ends, err = adm.ListEndOffsets(k.ctx(), k.topic)
		require.NoError(c, err)
		require.NoError(c, ends.Error())
	}, 20*time.Second, 10*time.Millisecond, "every partition has a leader that knows its end")
	left := 0
	for p := range int32(parts) {
		o, ok := ends.Lookup(k.topic, p)
		require.True(k.t, ok)
		require.NoError(k.t, o.Err)
		if o.Offset > 0 {
			offsets[p] = kgo.NewOffset().AtStart()
			left++
		}
	}
	got := make([][]string, parts)
	if left == 0 {
		return got
	}
	// Control records show how far the reader is.
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.seeds...), kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.DisableClientMetrics(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{k.topic: offsets}))
	require.NoError(k.t, err)
	defer cl.Close()
	for ctx := k.ctx(); left > 0; {
		fs := cl.PollFetches(ctx)
		require.NoError(k.t, fs.Err())
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				got[r.Partition] = append(got[r.Partition], string(r.Value))
			}
			if o, _ := ends.Lookup(k.topic, r.Partition); r.Offset == o.Offset-1 {
				left--
			}
		})
	}
	return got
}

// settled waits until no transaction of the topic is open: its markers are
// written.
func (k *kit) settled() {
	k.t.Helper()
	adm := kadm.NewClient(k.raw)
	require.Eventually(k.t, func() bool {
		open, err := adm.ListTransactions(k.ctx(), nil, []string{"PrepareCommit", "PrepareAbort"})
		if err != nil {
			return false
		}
		for id := range open {
			if slices.Contains(k.ids, id) {
				return false
			}
		}
		return true
	}, 20*time.Second, 10*time.Millisecond, "markers are written")
}

func (k *kit) requests(key kmsg.Key) int { return k.net.Requests(int16(key)) }

// promised collects what promises say.
type promised struct {
	mu   sync.Mutex
	recs []*kgo.Record
	errs []error
}

func (p *promised) promise(r *kgo.Record, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recs = append(p.recs, r)
	p.errs = append(p.errs, err)
}

func (p *promised) require(t *testing.T, n int, target error) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Len(t, p.errs, n)
	for i, err := range p.errs {
		if target == nil {
			require.NoError(t, err, "record %d", i)
			continue
		}
		require.ErrorIs(t, err, target, "record %d", i)
	}
}

func numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}
