package txnsession_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/netclient"
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
	embedded    = backend{name: "embedded"}
	embeddedOld = backend{name: "embedded old rules", old: true}
	backends    = []backend{
		embedded, embeddedOld,
		{name: "kafka 4.4.0", real: spec(kafkatest.Latest())},
		{name: "kafka 4.4.0 old rules", old: true, real: spec(kafkatest.OldRules())},
		{name: "kafka 3.9", old: true, real: spec(kafkatest.Kafka39())},
	}
)

// each runs a test on every kind of cluster.
func each(t *testing.T, test func(*testing.T, backend)) {
	t.Helper()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			if b.real != nil {
				kafkatest.Shared(t, *b.real) // skips where there is none
			}
			test(t, b)
		})
	}
}

// kit is a cluster, a network that breaks on command and a client.
type kit struct {
	t     *testing.T
	seeds []string
	net   *faultnet.Net
	nc    *netclient.Client
	raw   *kgo.Client // not through the network: the judge
	old   bool
	real  *kafkatest.Cluster
	topic string
	mark  string // makes ids unique on a cluster that is shared

	cannotDescribe bool // the cluster has no DescribeTransactions

	mu  sync.Mutex
	ids map[string]bool
}

const topic = "t"

// kit returns a fresh cluster, or a part of a shared real one that is the
// test's own.
func (b backend) kit(t *testing.T) *kit {
	t.Helper()
	if b.real == nil {
		var opts []kfake.Opt
		if b.old {
			opts = append(opts, oldRules(t))
		}
		k := newKit(t, opts...)
		k.old = b.old
		return k
	}
	c := kafkatest.Shared(t, *b.real)
	k := kitOn(t, c.Seeds())
	k.real, k.old = c, b.old
	k.topic = kafkatest.Topic(t, c, 4)
	k.mark = kafkatest.UniqueID(t) + "-"
	return k
}

func newKit(t *testing.T, opts ...kfake.Opt) *kit {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(4, topic)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return kitOn(t, c.ListenAddrs())
}

func kitOn(t *testing.T, seeds []string, opts ...kgo.Opt) *kit {
	t.Helper()
	k := &kit{t: t, seeds: seeds, net: faultnet.New(), topic: topic, ids: make(map[string]bool)}
	t.Cleanup(func() { k.net.Close() })
	k.nc = k.client(opts...)
	raw, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DisableClientMetrics())
	require.NoError(t, err)
	k.raw = raw
	t.Cleanup(raw.Close)
	return k
}

// id returns a transactional id of this test's own.
func (k *kit) id(id string) string {
	if id != "" && !strings.HasPrefix(id, k.mark) {
		id = k.mark + id
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ids[id] = true
	return id
}

// client returns another netclient on the same network, as another process
// would have.
func (k *kit) client(opts ...kgo.Opt) *netclient.Client {
	k.t.Helper()
	nc, err := netclient.New(append([]kgo.Opt{kgo.SeedBrokers(k.seeds...), kgo.Dialer(k.net.Dial),
		kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond })}, opts...)...)
	require.NoError(k.t, err)
	k.t.Cleanup(nc.Close)
	return nc
}

func (k *kit) session(id string, opts ...txnsession.Opt) *txnsession.Session {
	k.t.Helper()
	s, err := txnsession.New(k.nc, k.id(id), opts...)
	require.NoError(k.t, err)
	k.t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// ready returns an initialised session.
func (k *kit) ready(id string, opts ...txnsession.Opt) *txnsession.Session {
	k.t.Helper()
	s := k.session(id, opts...)
	require.NoError(k.t, s.Initialize(k.ctx(20*time.Second)))
	return s
}

// open returns a session in a transaction with one record written.
func (k *kit) open(id string, value string, opts ...txnsession.Opt) (*txnsession.Session, *rawWriter) {
	k.t.Helper()
	s := k.ready(id, opts...)
	require.NoError(k.t, s.Begin(k.ctx(20*time.Second)))
	w := k.writer(s)
	require.NoError(k.t, w.write(0, value))
	return s, w
}

func (k *kit) ctx(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	k.t.Cleanup(cancel)
	return ctx
}

// committed reads what a reader that is not ours sees.
func (k *kit) committed(parts ...int32) []string {
	k.t.Helper()
	return k.read(kgo.ReadCommitted(), parts...)
}

func (k *kit) read(level kgo.IsolationLevel, parts ...int32) []string {
	k.t.Helper()
	if len(parts) == 0 {
		parts = []int32{0, 1, 2, 3}
	}
	if level == kgo.ReadCommitted() {
		k.decided()
	}
	var got []string
	for _, p := range parts {
		got = append(got, readPartition(k.t, k.seeds, k.topic, p, level)...)
	}
	return got
}

// readPartition reads to the end of the log, or to the last stable offset, with
// requests of its own: a consumer does not tell how far it is when the last
// records are none for it.
func readPartition(t *testing.T, seeds []string, topic string, p int32, level kgo.IsolationLevel) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DisableClientMetrics())
	require.NoError(t, err)
	defer cl.Close()
	var isolation int8
	if level == kgo.ReadCommitted() {
		isolation = 1
	}
	var got []string
	for next := int64(0); ; {
		req := kmsg.NewPtrFetchRequest()
		req.MaxBytes, req.IsolationLevel = 1<<20, isolation
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p, next, 1<<20
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := byName{req}.send(ctx, cl)
		require.NoError(t, err)
		part := resp.Topics[0].Partitions[0]
		require.Zero(t, part.ErrorCode)
		end := part.HighWatermark
		if isolation == 1 {
			end = part.LastStableOffset
		}
		fp, after := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
			KeepControlRecords: true, Offset: next, IsolationLevel: level, Topic: topic, Partition: p,
		}, &part, kgo.DefaultDecompressor(), nil)
		require.NoError(t, fp.Err)
		for _, r := range fp.Records {
			if !r.Attrs.IsControl() {
				got = append(got, string(r.Value))
			}
		}
		if after >= end || after <= next {
			return got
		}
		next = after
	}
}

// byName is a Fetch that names topics by name.
type byName struct{ *kmsg.FetchRequest }

func (byName) MaxVersion() int16 { return 12 }

func (r byName) send(ctx context.Context, cl *kgo.Client) (*kmsg.FetchResponse, error) {
	leader, err := leaderOf(ctx, cl, r.Topics[0].Topic, r.Topics[0].Partitions[0].Partition)
	if err != nil {
		return nil, err
	}
	resp, err := cl.Broker(int(leader)).Request(ctx, r)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.FetchResponse), nil
}

func leaderOf(ctx context.Context, cl *kgo.Client, topic string, p int32) (int32, error) {
	meta, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	for _, t := range meta.Topics {
		for _, mp := range t.Partitions {
			if *t.Topic == topic && mp.Partition == p {
				return mp.Leader, nil
			}
		}
	}
	return 0, fmt.Errorf("%w of %s partition %d", errNoLeader, topic, p)
}

// decided waits until the markers of what is decided are written.
func (k *kit) decided() {
	k.t.Helper()
	if k.cannotDescribe {
		return
	}
	k.mu.Lock()
	ids := slices.Collect(maps.Keys(k.ids))
	k.mu.Unlock()
	for _, id := range ids {
		require.Eventually(k.t, func() bool { return !strings.HasPrefix(k.describe(id).State, "Prepare") }, 20*time.Second, 5*time.Millisecond, "markers of %s are written", id)
	}
}

// describe asks the coordinator, not through our code.
func (k *kit) describe(id string) kmsg.DescribeTransactionsResponseTransactionState {
	k.t.Helper()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{k.id(id)}
	resp, err := req.RequestWith(k.ctx(10*time.Second), k.raw)
	require.NoError(k.t, err)
	require.Len(k.t, resp.TransactionStates, 1)
	return resp.TransactionStates[0]
}

// next is the epoch after an end.
func (k *kit) next(epoch int16) int16 {
	if k.old {
		return epoch
	}
	return epoch + 1
}

func (k *kit) requests(key kmsg.Key) int { return k.net.Requests(int16(key)) }

// rawWriter is the simplest participant: one Produce at a time.
type rawWriter struct {
	k *kit
	s *txnsession.Session

	mu      sync.Mutex
	txn     *txnsession.Txn
	flushes int
	settled []txnsession.Verdict
	flush   func(context.Context) error
	discard func(context.Context) error
}

func (k *kit) writer(s *txnsession.Session) *rawWriter { return &rawWriter{k: k, s: s} }

func (w *rawWriter) Flush(ctx context.Context) error {
	w.mu.Lock()
	w.flushes++
	fn := w.flush
	w.mu.Unlock()
	if fn != nil {
		return fn(ctx)
	}
	return nil
}

func (w *rawWriter) Discard(ctx context.Context) error {
	if w.discard != nil {
		return w.discard(ctx)
	}
	return nil
}

func (w *rawWriter) Settle(v txnsession.Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settled = append(w.settled, v)
}

func (w *rawWriter) write(part int32, values ...string) error {
	txn, err := w.s.Enlist(w, txnsession.PhaseSend)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.txn = txn
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	seq, err := txn.Own(ctx, w.k.topic, [16]byte{}, part)
	if err != nil {
		return err
	}
	offset, err := w.k.produce(ctx, w.s.TransactionalID(), txn, part, seq, values...)
	if err != nil {
		txn.Fail(&txnsession.Error{Op: "produce", Err: err})
		return err
	}
	txn.Advance(w.k.topic, [16]byte{}, part, int32(len(values)))
	txn.Wrote(w.k.topic, part, offset)
	return nil
}

type producerIdentity interface {
	ProducerID() int64
	ProducerEpoch() int16
	TransactionVersion() int16
}

func (k *kit) produce(ctx context.Context, id string, who producerIdentity, part, seq int32, values ...string) (int64, error) {
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = &id, -1, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = k.topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = part, encodeBatch(who, seq, values)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	for {
		resp, err := pinned{req, who.TransactionVersion()}.send(ctx, k.raw)
		var got kmsg.ProduceResponseTopicPartition
		if err == nil {
			got = resp.Topics[0].Partitions[0]
			err = kerr.ErrorForCode(got.ErrorCode)
		}
		if !kerr.IsRetriable(err) && !errors.Is(err, errNoLeader) || ctx.Err() != nil {
			return got.BaseOffset, err
		}
	}
}

var errNoLeader = errors.New("no leader")

// pinned keeps Produce at the versions of the rules and of names for topics.
type pinned struct {
	*kmsg.ProduceRequest
	rules int16
}

func (p pinned) MaxVersion() int16 {
	if p.rules < 2 {
		return 11
	}
	return 12
}

func (p pinned) send(ctx context.Context, cl *kgo.Client) (*kmsg.ProduceResponse, error) {
	leader, err := leaderOf(ctx, cl, p.Topics[0].Topic, p.Topics[0].Partitions[0].Partition)
	if err != nil {
		return nil, err
	}
	resp, err := cl.Broker(int(leader)).Request(ctx, p)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.ProduceResponse), nil
}

func encodeBatch(who producerIdentity, seq int32, values []string) []byte {
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: 0x10, LastOffsetDelta: int32(len(values) - 1),
		FirstTimestamp: now, MaxTimestamp: now, ProducerID: who.ProducerID(), ProducerEpoch: who.ProducerEpoch(),
		FirstSequence: seq, NumRecords: int32(len(values)),
	}
	for i, v := range values {
		r := kmsg.Record{OffsetDelta: int32(i), Value: []byte(v)}
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		b.Records = r.AppendTo(b.Records)
	}
	b.Length = int32(len(b.AppendTo(nil)) - 12)
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}
