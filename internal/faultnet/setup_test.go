package faultnet_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/ktxn/ktxn/internal/faultnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	produceKey         int16 = 0
	metadataKey        int16 = 3
	findCoordinatorKey int16 = 10
	apiVersionsKey     int16 = 18
	initKey            int16 = 22
	endTxnKey          int16 = 26
)

// longTime bounds what must happen; no test waits for it to pass.
const longTime = 30 * time.Second

// world is a cluster, a network to it, and a client on that network.
type world struct {
	t       *testing.T
	ctx     context.Context
	cluster *kfake.Cluster
	net     *faultnet.Net
	client  *kgo.Client
	seen    [100]atomic.Int64 // requests that the brokers saw, by key
}

func newWorld(t *testing.T, brokers int, opts ...kfake.Opt) *world {
	t.Helper()
	opts = append([]kfake.Opt{kfake.NumBrokers(brokers), kfake.SeedTopics(2, "topic")}, opts...)
	cluster, err := kfake.NewCluster(opts...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)

	w := &world{t: t, cluster: cluster, net: faultnet.New()}
	t.Cleanup(w.net.Close)
	cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		w.seen[req.Key()].Add(1)
		return nil, nil, false
	})
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithTimeout(t.Context(), longTime)
	t.Cleanup(cancel)
	w.client = w.newClient()
	require.NoError(t, w.client.Ping(w.ctx))
	return w
}

// newClient returns a client on the world's network.
func (w *world) newClient(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(w.cluster.ListenAddrs()...),
		kgo.Dialer(w.net.Dial),
		kgo.DisableClientMetrics(),
	}, opts...)...)
	require.NoError(w.t, err)
	w.t.Cleanup(cl.Close)
	return cl
}

// ask sends one request to node 0, one attempt.
func (w *world) ask(req kmsg.Request) (kmsg.Response, error) {
	return w.client.Broker(0).Request(w.ctx, req)
}

// initTxn asks for a producer id under a transactional id: each one that is
// applied moves the epoch by one.
func (w *world) initTxn() (*kmsg.InitProducerIDResponse, error) {
	resp, err := w.ask(initRequest())
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.InitProducerIDResponse), nil
}

func initRequest() *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = kmsg.StringPtr("txn")
	req.TransactionTimeoutMillis = 60_000
	req.ProducerID = -1
	req.ProducerEpoch = -1
	return req
}

// epoch applies one more InitProducerId and returns the epoch it gave.
func (w *world) epoch() int16 {
	w.t.Helper()
	resp, err := w.initTxn()
	require.NoError(w.t, err)
	require.Zero(w.t, resp.ErrorCode)
	return resp.ProducerEpoch
}

// epochLater is epoch in the background; the channel gives -1 if it failed.
func (w *world) epochLater() <-chan int16 {
	done := make(chan int16, 1)
	go func() {
		resp, err := w.initTxn()
		if err != nil || resp.ErrorCode != 0 {
			done <- -1
			return
		}
		done <- resp.ProducerEpoch
	}()
	return done
}

// last returns the newest log entry of a key.
func (w *world) last(key int16) faultnet.Request {
	w.t.Helper()
	for _, r := range slices.Backward(w.net.Log()) {
		if r.Key == key {
			return r
		}
	}
	w.t.Fatalf("no request of key %d in the log", key)
	return faultnet.Request{}
}

// frameOf encodes a request as a client does.
func frameOf(corr int32, req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw")).AppendRequest(nil, req, corr)
}

// at sets the version of a request.
func at[R kmsg.Request](version int16, req R) R {
	req.SetVersion(version)
	return req
}

// readFrame reads one answer: its correlation id and what follows it.
func readFrame(t *testing.T, r io.Reader) (corr int32, body []byte) {
	t.Helper()
	head := make([]byte, 8)
	_, err := io.ReadFull(r, head)
	require.NoError(t, err)
	body = make([]byte, binary.BigEndian.Uint32(head)-4)
	_, err = io.ReadFull(r, body)
	require.NoError(t, err)
	return int32(binary.BigEndian.Uint32(head[4:])), body
}

// answerFrame is an answer with any body.
func answerFrame(corr int32, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(corr))
	return append(b, body...)
}

// pipe is a connection over the network to a broker that the test plays.
func pipe(t *testing.T, opts ...faultnet.Option) (nw *faultnet.Net, client, broker net.Conn) {
	t.Helper()
	client, broker = net.Pipe()
	nw = faultnet.New(append(opts, faultnet.WithDialer(func(context.Context, string, string) (net.Conn, error) {
		return client, nil
	}))...)
	t.Cleanup(nw.Close)
	t.Cleanup(func() { _ = broker.Close() })
	client, err := nw.Dial(t.Context(), "tcp", "broker:9092")
	require.NoError(t, err)
	return nw, client, broker
}

// forever is a fault of any request that never wears out.
func forever(a faultnet.Action) faultnet.Fault {
	return faultnet.Fault{Key: faultnet.Any, Node: faultnet.Any, Times: faultnet.Forever, Action: a}
}

// never is a fault that looks at every request in whole and takes none.
func never() faultnet.Fault {
	f := forever(faultnet.CutBefore)
	f.Match = func(faultnet.Request) bool { return false }
	return f
}

func heartbeat(group string) *kmsg.HeartbeatRequest {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version = 4
	req.Group = group
	return req
}

// sendAll writes in the background: a pipe has no buffer.
func sendAll(conn net.Conn, frames ...[]byte) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := conn.Write(bytes.Join(frames, nil))
		done <- err
	}()
	return done
}
