package proof_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

// kit is a cluster behind a network that breaks on command and keeps what was
// sent. The judges do not go through it.
type kit struct {
	t     *testing.T
	real  *kafkatest.Cluster // nil: the embedded cluster
	seeds []string
	topic string
	net   *faultnet.Net
}

// onReal returns a part of a shared Kafka that is the test's own.
func onReal(t *testing.T, spec kafkatest.Spec, partitions int) *kit {
	t.Helper()
	c := kafkatest.Shared(t, spec)
	return &kit{t: t, real: c, seeds: c.Seeds(), topic: kafkatest.Topic(t, c, partitions), net: newNet(t)}
}

// onEmbedded returns an embedded cluster of so many nodes.
func onEmbedded(t *testing.T, nodes, partitions int) *kit {
	t.Helper()
	const topic = "t"
	c, err := kfake.NewCluster(kfake.NumBrokers(nodes), kfake.SeedTopics(int32(partitions), topic))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &kit{t: t, seeds: c.ListenAddrs(), topic: topic, net: newNet(t)}
}

// both runs a test on a real Kafka of one node and on the embedded cluster.
func both(t *testing.T, partitions int, test func(*kit)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) { test(onEmbedded(t, 1, partitions)) })
	t.Run("kafka", func(t *testing.T) { test(onReal(t, kafkatest.Latest(), partitions)) })
}

func newNet(t *testing.T, opts ...faultnet.Option) *faultnet.Net {
	t.Helper()
	nw := faultnet.New(opts...)
	t.Cleanup(nw.Close)
	return nw
}

// ctx bounds whatever a test does, far above what it takes.
func (k *kit) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	k.t.Cleanup(cancel)
	return ctx
}

func (k *kit) client(opts ...kgo.Opt) *netclient.Client {
	k.t.Helper()
	nc, err := netclient.New(append([]kgo.Opt{kgo.SeedBrokers(k.seeds...), kgo.Dialer(k.net.Dial)}, opts...)...)
	require.NoError(k.t, err)
	k.t.Cleanup(nc.Close)
	return nc
}

// session returns a session that is not initialised yet.
func (k *kit) session(nc *netclient.Client, id string, opts ...txnsession.Opt) *txnsession.Session {
	k.t.Helper()
	s, err := txnsession.New(nc, id, opts...)
	require.NoError(k.t, err)
	k.t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// ready returns an initialised session with an id of its own.
func (k *kit) ready(nc *netclient.Client, opts ...txnsession.Opt) *txnsession.Session {
	k.t.Helper()
	s := k.session(nc, kafkatest.UniqueID(k.t), opts...)
	require.NoError(k.t, s.Initialize(k.ctx()))
	return s
}

// producer returns a producer that writes where a record says.
func (k *kit) producer(s *txnsession.Session, opts ...kgo.ProducerOpt) *producer.Producer {
	k.t.Helper()
	p, err := producer.New(s, append([]kgo.ProducerOpt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(k.topic),
	}, opts...)...)
	require.NoError(k.t, err)
	return p
}

// open begins a transaction of s with one record.
func (k *kit) open(s *txnsession.Session, p *producer.Producer, value string) {
	k.t.Helper()
	require.NoError(k.t, s.Begin(k.ctx()))
	require.NoError(k.t, p.ProduceSync(k.ctx(), record(0, value)).FirstErr())
}

// committed is what a reader that is not ours sees, partition by partition.
func (k *kit) committed() []*kgo.Record {
	k.t.Helper()
	var recs []*kgo.Record
	var err error
	if k.real != nil {
		recs, err = kafkatest.ReadCommitted(k.ctx(), k.real, k.topic)
	} else {
		recs, err = readEmbedded(k.ctx(), k.seeds, k.topic)
	}
	require.NoError(k.t, err)
	return recs
}

// describe is what the coordinator of a real Kafka tells of an id.
func (k *kit) describe(id string) kafkatest.Txn {
	k.t.Helper()
	txn, err := kafkatest.DescribeTxn(k.ctx(), k.real, id)
	require.NoError(k.t, err)
	return txn
}

func (k *kit) requests(key kmsg.Key) int { return k.net.Requests(int16(key)) }

// groupOffset is what a group has committed for partition 0 of a topic, 0 if
// nothing.
func groupOffset(t *testing.T, c *kafkatest.Cluster, group, topic string) int64 {
	t.Helper()
	cl, err := kgo.NewClient(append(c.Opts(), kgo.DisableClientMetrics())...)
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), quiet)
	defer cancel()
	got, err := kadm.NewClient(cl).FetchOffsets(kadm.RequireStable(ctx), group)
	require.NoError(t, err)
	o, _ := got.Lookup(topic, 0)
	require.NoError(t, o.Err)
	return o.At
}

// quiet bounds the wait for what takes no time on a machine that is not loaded.
const quiet = 30 * time.Second

func record(partition int32, value string) *kgo.Record {
	return &kgo.Record{Partition: partition, Value: []byte(value)}
}

func values(recs []*kgo.Record) []string {
	var vs []string
	for _, r := range recs {
		vs = append(vs, string(r.Value))
	}
	return vs
}

func numbered(prefix string, n int) []string {
	vs := make([]string, n)
	for i := range vs {
		vs[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return vs
}

// readEmbedded reads an embedded cluster's topic as kgo's read_committed
// consumer does. Nothing of it may be open any more.
func readEmbedded(ctx context.Context, seeds []string, topic string) ([]*kgo.Record, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableClientMetrics(), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ends, err := ends(ctx, cl, topic)
	if err != nil {
		return nil, err
	}
	var recs []*kgo.Record
	for len(ends) > 0 { // the last record of each partition is a marker
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return nil, err
		}
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				recs = append(recs, r)
			}
			if r.Offset == ends[r.Partition]-1 {
				delete(ends, r.Partition)
			}
		})
	}
	slices.SortStableFunc(recs, func(a, b *kgo.Record) int { return int(a.Partition - b.Partition) })
	return recs, nil
}

// ends are the end offsets of the partitions that are not empty.
func ends(ctx context.Context, cl *kgo.Client, topic string) (map[int32]int64, error) {
	listed, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends := make(map[int32]int64)
	for _, o := range listed.Offsets().Sorted() {
		if o.At > 0 {
			ends[o.Partition] = o.At
		}
	}
	return ends, nil
}
