package netclient_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/internal/link"
	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/netclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(kafkatest.Main(m)) }

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newCluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(1, "t")}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster
}

func newClient(t *testing.T, opts ...kgo.Opt) *netclient.Client {
	t.Helper()
	nc, err := netclient.New(opts...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// initID has a session's request travel.
func initID(ctx context.Context, nc *netclient.Client, id string) transport.Result {
	return link.Transport(nc).Lane().Do(ctx, transport.Call{
		Target: transport.TxnCoordinator(id),
		New: func() kmsg.Request {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID = kmsg.StringPtr(id)
			req.TransactionTimeoutMillis = 60_000
			return req
		},
		Code: func(r kmsg.Response) (int16, string) { return r.(*kmsg.InitProducerIDResponse).ErrorCode, "" },
	})
}

func TestNew(t *testing.T) {
	cluster := newCluster(t)
	nc := newClient(t, kgo.SeedBrokers(cluster.ListenAddrs()...), netclient.CoordinatorLanes(1), netclient.ProduceLanes(2))
	require.NoError(t, nc.Ping(within(t)))
	v, err := nc.TransactionVersion(within(t))
	require.NoError(t, err)
	require.Equal(t, int16(2), v)
	for k, want := range map[netclient.Capability]bool{
		netclient.TransactionsV2: true, netclient.ShareGroups: true,
		netclient.TwoPhaseCommit: false, netclient.KeepPrepared: false,
		netclient.TxnHeartbeat: false, netclient.TxnShareAcks: false,
	} {
		got, err := nc.Supports(within(t), k)
		require.NoError(t, err)
		require.Equal(t, want, got, "%s", k)
	}
	_, err = nc.Supports(within(t), "KIP-0")
	require.Error(t, err)
	topics, err := kadm.NewClient(nc.KgoClient()).ListTopics(within(t))
	require.NoError(t, err)
	require.True(t, topics.Has("t"))

	tr := link.Transport(nc)
	require.Same(t, tr.Lane(), tr.Lane(), "one lane, as the option says")
	require.NotSame(t, tr.ProduceLane(), tr.ProduceLane())
	require.Nil(t, link.Transport("something else"))
	require.Nil(t, link.Transport((*netclient.Client)(nil)))
}

func TestNewHasFourLanesByDefault(t *testing.T) {
	tr := link.Transport(newClient(t))
	lanes, produce := make(map[any]bool), make(map[any]bool)
	for range 20 {
		lanes[tr.Lane()] = true
		produce[tr.ProduceLane()] = true
	}
	require.Len(t, lanes, 4)
	require.Len(t, produce, 4)
}

func TestNewRefuses(t *testing.T) {
	proof := netclient.Proof{Feature: "f", MinLevel: 1, Keys: map[string]int16{"TxnHeartbeat": 95}}
	for name, tc := range map[string]struct {
		opt  kgo.Opt
		text string
	}{
		"producer options": {kgo.TransactionalID("id"), "kgo.ProducerOpt given to netclient.New: producer options belong to producer.New"},
		"consumer options": {kgo.ConsumeTopics("t"), "kgo.ConsumerOpt given to netclient.New: "},
		"group options":    {kgo.ConsumerGroup("g"), "kgo.GroupOpt given to netclient.New: "},
		"share groups":     {kgo.ShareGroup("g"), "kgo.GroupOpt given to netclient.New: "},
		"nil":              {nil, "nil given to netclient.New"},
		"no lanes":         {netclient.CoordinatorLanes(0), "netclient.CoordinatorLanes(0)"},
		"fewer":            {netclient.ProduceLanes(-1), "netclient.ProduceLanes(-1)"},
		"unknown draft":    {netclient.DraftAPI("KIP-1", proof), "KIP-1"},
		"settled draft":    {netclient.DraftAPI(netclient.TransactionsV2, proof), "settled"},
		"another's key": {netclient.DraftAPI(netclient.TxnHeartbeat, netclient.Proof{
			Feature: "f", MinLevel: 1, Keys: map[string]int16{"TxnHeartbeat": 26},
		}), "EndTxn"},
		"a nil hook":               {netclient.WithHooks(nil), "hook is nil"},
		"a hook kgo does not know": {kgo.WithHooks(new(retryHook)), "netclient.WithHooks"},
		"what kgo refuses":         {kgo.SeedBrokers(), "seed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := netclient.New(tc.opt)
			require.ErrorContains(t, err, tc.text)
		})
	}
	t.Run("all at once", func(t *testing.T) {
		_, err := netclient.New(kgo.ClientID("fine"), kgo.TransactionalID("id"), netclient.ProduceLanes(0))
		require.ErrorContains(t, err, "option 2: ")
		require.ErrorContains(t, err, "option 3: ")
	})
	t.Run("in FromClient too", func(t *testing.T) {
		cl, err := kgo.NewClient()
		require.NoError(t, err)
		defer cl.Close()
		_, err = netclient.FromClient(cl, kgo.TransactionalID("id"))
		require.ErrorContains(t, err, "given to netclient.FromClient")
		_, err = netclient.FromClient(nil)
		require.Error(t, err)
	})
}

// The options of this package can stand among kgo's.
func TestOptionsDoNothingToKgo(t *testing.T) {
	cl, err := kgo.NewClient(netclient.CoordinatorLanes(0), netclient.DraftAPI("?", netclient.Proof{}),
		netclient.ProduceLanes(-7), netclient.WithHooks(new(retryHook)))
	require.NoError(t, err)
	defer cl.Close()
	require.Empty(t, cl.OptValue(kgo.WithHooks))
}

func TestTheLastOptionCounts(t *testing.T) {
	nc := newClient(t, netclient.CoordinatorLanes(3), netclient.CoordinatorLanes(1),
		netclient.DraftAPI(netclient.TxnHeartbeat, netclient.Proof{Feature: "f", MinLevel: 1, Keys: map[string]int16{"TxnHeartbeat": 95}}),
		netclient.DraftAPI(netclient.TxnHeartbeat, netclient.Proof{Feature: "f", MinLevel: 1, Keys: map[string]int16{"TxnHeartbeat": 96}}))
	tr := link.Transport(nc)
	require.Same(t, tr.Lane(), tr.Lane())
	require.Equal(t, int16(96), tr.DraftKey("TxnHeartbeat"))
}

func TestFromClient(t *testing.T) {
	cluster := newCluster(t)
	nw := faultnet.New()
	t.Cleanup(nw.Close)
	hook := new(connectHook)
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(nw.Dial), kgo.ClientID("theirs"),
		kgo.MaxVersions(kversion.V3_9_0()), kgo.WithHooks(hook),
		kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.TransactionalID("theirs"))
	require.NoError(t, err)
	defer cl.Close()
	require.Eventually(t, func() bool {
		info := cluster.GroupInfo("g")
		return info != nil && len(info.Members) == 1
	}, 10*time.Second, 5*time.Millisecond, "the source is in its group")

	nc, err := netclient.FromClient(cl, netclient.CoordinatorLanes(1))
	require.NoError(t, err)
	require.NoError(t, nc.Ping(within(t)), "through the dialer of the source")
	require.Equal(t, "theirs", nc.KgoClient().OptValue(kgo.ClientID))
	v, err := nc.TransactionVersion(within(t))
	require.NoError(t, err)
	require.Zero(t, v, "the caps came along")
	require.NoError(t, initID(within(t), nc, "mine").Err)
	require.Empty(t, nc.KgoClient().OptValue(kgo.ConsumerGroup))
	require.Empty(t, nc.KgoClient().OptValue(kgo.ConsumeTopics))
	require.Empty(t, nc.KgoClient().OptValue(kgo.TransactionalID))
	link.Transport(nc).EachHook(func(kgo.Hook) { t.Error("a hook came along") })
	nc.Close()

	require.Len(t, cluster.GroupInfo("g").Members, 1, "nobody else joined")
	require.NoError(t, cl.Ping(within(t)), "the source stays its owner's")

	// The other way round.
	nc, err = netclient.FromClient(cl, kgo.ClientID("mine"))
	require.NoError(t, err)
	defer nc.Close()
	cl.CloseAllowingRebalance()
	require.NoError(t, nc.Ping(within(t)))
	require.Equal(t, "mine", nc.KgoClient().OptValue(kgo.ClientID))
}

type connectHook struct{ connects atomic.Int32 }

func (h *connectHook) OnBrokerConnect(kgo.BrokerMetadata, time.Duration, net.Conn, error) {
	h.connects.Add(1)
}

// retryHook has none of kgo's methods.
type retryHook struct {
	retries atomic.Int32
	last    atomic.Pointer[netclient.Retry]
	moves   atomic.Int32
}

func (h *retryHook) OnRetry(r netclient.Retry) {
	h.retries.Add(1)
	h.last.Store(&r)
}
func (h *retryHook) OnCoordinatorChange(string, int32, int32) { h.moves.Add(1) }

// bothHook has methods of kgo and of this package.
type bothHook struct {
	connectHook
	retryHook
}

var (
	_ netclient.HookRetry             = (*retryHook)(nil)
	_ netclient.HookCoordinatorChange = (*retryHook)(nil)
)

func TestHooks(t *testing.T) {
	cluster := newCluster(t)
	nw := faultnet.New()
	t.Cleanup(nw.Close)
	own, both, kgos := new(retryHook), new(bothHook), new(bothHook)
	nc := newClient(t, kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(nw.Dial),
		netclient.WithHooks(own, both), kgo.WithHooks(kgos))
	nw.Inject(faultnet.Fault{Key: int16(kmsg.InitProducerID), Node: faultnet.Any, Action: faultnet.Answer, Code: kerr.ConcurrentTransactions.Code})
	require.NoError(t, initID(within(t), nc, "id").Err)
	for _, h := range []*retryHook{own, &both.retryHook, &kgos.retryHook} {
		require.Equal(t, int32(1), h.retries.Load())
		require.ErrorIs(t, h.last.Load().Err, kerr.ConcurrentTransactions)
		require.Equal(t, int16(kmsg.InitProducerID), h.last.Load().Key)
	}
	require.Positive(t, both.connects.Load())
	require.Positive(t, kgos.connects.Load())

	old := cluster.CoordinatorFor("id")
	for cluster.CoordinatorFor("id") == old {
		cluster.RehashCoordinators()
	}
	require.NoError(t, initID(within(t), nc, "id").Err)
	require.Equal(t, int32(1), own.moves.Load())
	require.Equal(t, int32(1), both.moves.Load())
}

func TestPing(t *testing.T) {
	cluster := newCluster(t)
	nw := faultnet.New()
	t.Cleanup(nw.Close)
	nc := newClient(t, kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(nw.Dial))
	require.NoError(t, nc.Ping(within(t)))
	nw.DownAll()
	require.Error(t, nc.Ping(within(t)))
	nw.UpAll()
	nw.BlackholeAll()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, nc.Ping(ctx), context.Canceled)
	nw.HealAll()
	require.NoError(t, nc.Ping(within(t)))
	nc.Close()
	require.ErrorIs(t, nc.Ping(within(t)), kgo.ErrClientClosed)
}

func TestClose(t *testing.T) {
	cluster := newCluster(t)
	nw := faultnet.New()
	t.Cleanup(nw.Close)
	nc := newClient(t, kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(nw.Dial))
	require.NoError(t, initID(within(t), nc, "id").Err)
	nw.BlackholeAll()
	res := make(chan transport.Result, 1)
	go func() { res <- initID(within(t), nc, "id") }()
	began := time.Now()
	nc.Close()
	nc.Close()
	require.Less(t, time.Since(began), 3*time.Second, "the bound is 2 s")
	require.ErrorIs(t, (<-res).Err, kgo.ErrClientClosed)
}

// A broker and a client as old as Kafka 0.11, where transactions began.
func TestOldestCluster(t *testing.T) {
	cluster := newCluster(t, kfake.MaxVersions(kversion.V0_11_0()))
	nc := newClient(t, kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.MaxVersions(kversion.V0_11_0()))
	r := initID(within(t), nc, "id")
	require.NoError(t, r.Err)
	require.Zero(t, r.Version)
	v, err := nc.TransactionVersion(within(t))
	require.NoError(t, err)
	require.Zero(t, v)
	for _, k := range []netclient.Capability{netclient.TransactionsV2, netclient.TwoPhaseCommit, netclient.ShareGroups} {
		got, err := nc.Supports(within(t), k)
		require.NoError(t, err)
		require.False(t, got)
	}
}
