package transport_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	produce        = int16(kmsg.Produce)
	metadata       = int16(kmsg.Metadata)
	findCoord      = int16(kmsg.FindCoordinator)
	apiVersions    = int16(kmsg.ApiVersions)
	initProducerID = int16(kmsg.InitProducerID)
	endTxn         = int16(kmsg.EndTxn)
)

// env is a cluster, a network that breaks on command, and a client on both.
type env struct {
	t       *testing.T
	cluster *kfake.Cluster
	nw      *faultnet.Net
	c       *transport.Client

	mu      sync.Mutex
	retries []transport.Retry
	moves   []move
}

type move struct {
	id       string
	from, to int32
}

// tracker is the hook that collects what an env is told.
type tracker struct{ e *env }

// start makes an env of three brokers. opts may be kfake.Opt, kgo.Opt, or
// func(*transport.Options).
func start(t *testing.T, opts ...any) *env {
	t.Helper()
	cluster := []kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(3, "t")}
	e := &env{t: t}
	for _, o := range opts {
		if o, ok := o.(kfake.Opt); ok {
			cluster = append(cluster, o)
		}
	}
	var err error
	e.cluster, err = kfake.NewCluster(cluster...)
	require.NoError(t, err)
	t.Cleanup(e.cluster.Close)
	e.nw = faultnet.New(faultnet.WithDataBodies())
	t.Cleanup(e.nw.Close)
	e.c = e.client(opts...)
	return e
}

// client makes another client in the env.
func (e *env) client(opts ...any) *transport.Client {
	e.t.Helper()
	o := transport.Options{
		Kgo:              []kgo.Opt{kgo.SeedBrokers(e.cluster.ListenAddrs()...), kgo.Dialer(e.nw.Dial)},
		Hooks:            []kgo.Hook{tracker{e}},
		CoordinatorLanes: 2,
		ProduceLanes:     2,
		OnRetry: func(h kgo.Hook, r transport.Retry) {
			if h, ok := h.(tracker); ok {
				h.e.mu.Lock()
				defer h.e.mu.Unlock()
				h.e.retries = append(h.e.retries, r)
			}
		},
		OnCoordinatorChange: func(h kgo.Hook, id string, from, to int32) {
			if h, ok := h.(tracker); ok {
				h.e.mu.Lock()
				defer h.e.mu.Unlock()
				h.e.moves = append(h.e.moves, move{id, from, to})
			}
		},
	}
	for _, opt := range opts {
		switch opt := opt.(type) {
		case kfake.Opt:
		case kgo.Opt:
			o.Kgo = append(o.Kgo, opt)
		case func(*transport.Options):
			opt(&o)
		default:
			e.t.Fatalf("option of type %T", opt)
		}
	}
	c, err := transport.New(o)
	require.NoError(e.t, err)
	e.t.Cleanup(c.Close)
	return c
}

func (e *env) retried() []transport.Retry {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]transport.Retry(nil), e.retries...)
}

func (e *env) moved() []move {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]move(nil), e.moves...)
}

// fault puts a fault in place for any node.
func (e *env) fault(key int16, action faultnet.Action, more ...func(*faultnet.Fault)) *faultnet.Injection {
	f := faultnet.Fault{Key: key, Node: faultnet.Any, Action: action}
	for _, m := range more {
		m(&f)
	}
	inj := e.nw.Inject(f)
	e.t.Cleanup(func() {
		require.NoError(e.t, inj.Err())
		inj.Remove()
	})
	return inj
}

func code(c int16) func(*faultnet.Fault)   { return func(f *faultnet.Fault) { f.Code = c } }
func times(n int) func(*faultnet.Fault)    { return func(f *faultnet.Fault) { f.Times = n } }
func atNode(n int32) func(*faultnet.Fault) { return func(f *faultnet.Fault) { f.Node = n } }
func edit(fn func(req kmsg.Request, resp kmsg.Response)) func(*faultnet.Fault) {
	return func(f *faultnet.Fault) { f.Edit = fn }
}

// within bounds a test step: a call that hangs fails the test by its error.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// initCall takes a transactional id over.
func initCall(id string) transport.Call {
	return transport.Call{
		Target: transport.TxnCoordinator(id),
		New: func() kmsg.Request {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID = kmsg.StringPtr(id)
			req.TransactionTimeoutMillis = 60_000
			return req
		},
		Code: func(r kmsg.Response) (int16, string) { return r.(*kmsg.InitProducerIDResponse).ErrorCode, "" },
	}
}

// endCall ends a transaction that was never begun; the broker refuses it.
func endCall(id string) transport.Call {
	return transport.Call{
		Target: transport.TxnCoordinator(id),
		New: func() kmsg.Request {
			req := kmsg.NewPtrEndTxnRequest()
			req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, 1, 1
			return req
		},
		Code: func(r kmsg.Response) (int16, string) { return r.(*kmsg.EndTxnResponse).ErrorCode, "" },
	}
}

// produceReq writes one batch without a producer id.
func produceReq(topic string, partition int32) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition = partition
	rp.Records = []byte{}
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}
