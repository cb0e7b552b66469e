package faultnet_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
)

func TestLogTellsWhatWasSentAndAnswered(t *testing.T) {
	w := newWorld(t, 1)
	w.epoch()
	got := w.last(initKey)
	require.EqualValues(t, 5, got.Version)
	require.Equal(t, w.cluster.ListenAddrs()[0], got.Addr)
	require.EqualValues(t, 0, got.Node)
	require.Equal(t, "kgo", got.ClientID)
	require.NotZero(t, got.Conn)
	require.False(t, got.At.IsZero())
	require.False(t, got.AnsweredAt.Before(got.At))
	require.True(t, got.Delivered)
	require.True(t, got.Served)
	require.True(t, got.Answered)
	require.Zero(t, got.Action)

	req, err := got.Decode()
	require.NoError(t, err)
	require.Equal(t, "txn", *req.(*kmsg.InitProducerIDRequest).TransactionalID)
	resp, err := got.DecodeAnswer()
	require.NoError(t, err)
	require.Positive(t, resp.(*kmsg.InitProducerIDResponse).ProducerID)

	log := w.net.Log()
	require.Equal(t, apiVersionsKey, log[0].Key)
	require.EqualValues(t, faultnet.Any, log[0].Node, "the node was known before anybody named it")
	_, err = log[0].DecodeAnswer()
	require.NoError(t, err)
	require.Equal(t, len(log), w.net.Requests(faultnet.Any))
	require.Equal(t, 1, w.net.Requests(initKey))
	require.Zero(t, w.net.Requests(endTxnKey))
}

func TestDataBodiesAreKeptOnRequest(t *testing.T) {
	for _, kept := range []bool{false, true} {
		w := newWorld(t, 1)
		if kept {
			w.net = faultnet.New(faultnet.WithDataBodies())
			t.Cleanup(w.net.Close)
		}
		cl := w.newClient()
		require.NoError(t, cl.ProduceSync(w.ctx, &kgo.Record{Topic: "topic", Value: []byte("v")}).FirstErr())
		got := w.last(produceKey)
		require.True(t, got.Answered)
		req, err := got.Decode()
		if !kept {
			require.ErrorIs(t, err, faultnet.ErrNoBody)
			require.Nil(t, got.Answer)
			continue
		}
		require.NoError(t, err)
		require.Len(t, req.(*kmsg.ProduceRequest).Topics, 1)
		_, err = got.DecodeAnswer()
		require.NoError(t, err)
	}
}

func TestBodyLimit(t *testing.T) {
	nw, client, broker := pipe(t, faultnet.WithBodyLimit(20))
	for corr, group := range []string{"short", "a name that is too long to be kept"} {
		frame := frameOf(int32(corr), heartbeat(group))
		sent := sendAll(client, frame)
		_, err := io.CopyN(io.Discard, broker, int64(len(frame)))
		require.NoError(t, err)
		require.NoError(t, <-sent)
	}
	_, err := nw.Log()[0].Decode()
	require.NoError(t, err)
	_, err = nw.Log()[1].Decode()
	require.ErrorIs(t, err, faultnet.ErrNoBody)
}

func TestWaitEndsWithItsContext(t *testing.T) {
	w := newWorld(t, 1)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(w.ctx)
	cancel(cause)
	inj := w.net.Inject(onInit(faultnet.CutBefore))
	require.ErrorIs(t, inj.WaitHits(ctx, 1), cause)
	require.ErrorIs(t, w.net.WaitRequests(ctx, initKey, 1), cause)
	require.ErrorIs(t, w.net.Wait(ctx, func([]faultnet.Request) bool { return false }), cause)
	require.NoError(t, w.net.Wait(ctx, func([]faultnet.Request) bool { return true }))
}

func TestWaitRequestsSeesTheRequestBeforeItsAnswer(t *testing.T) {
	w := newWorld(t, 1)
	inj := w.net.Inject(onInit(faultnet.Delay))
	done := w.epochLater()
	require.NoError(t, w.net.WaitRequests(w.ctx, initKey, 1))
	require.NoError(t, inj.WaitHits(w.ctx, 1))
	require.Empty(t, done)
	inj.Release()
	require.NotEqualValues(t, -1, <-done)
}

func TestResetForgetsLogAndFaults(t *testing.T) {
	w := newWorld(t, 1)
	held := w.net.Inject(onInit(faultnet.Delay))
	done := w.epochLater()
	require.NoError(t, held.WaitHits(w.ctx, 1))
	w.net.Inject(forever(faultnet.CutBefore))
	w.net.Down("elsewhere:1")
	w.net.Blackhole("elsewhere:2")

	w.net.Reset()
	require.NotEqualValues(t, -1, <-done, "the held answer was not let go")
	require.Zero(t, w.net.Requests(initKey))
	w.epoch()
	require.Equal(t, 1, w.net.Requests(initKey))
	addr, ok := w.net.Addr(0)
	require.True(t, ok)
	require.Equal(t, w.cluster.ListenAddrs()[0], addr)
	_, ok = w.net.Addr(7)
	require.False(t, ok)
}

func TestTLSIsSpokenByTheNet(t *testing.T) {
	server := httptest.NewUnstartedServer(nil) // for its certificate
	server.StartTLS()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	cert := server.TLS.Certificates
	server.Close()

	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.TLS(&tls.Config{Certificates: cert}))
	require.NoError(t, err)
	defer cluster.Close()
	nw := faultnet.New(faultnet.WithTLS(&tls.Config{RootCAs: pool}))
	defer nw.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(nw.Dial), kgo.DisableClientMetrics())
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), longTime)
	defer cancel()
	require.NoError(t, cl.Ping(ctx))

	f := onInit(faultnet.Answer)
	f.Code = 51
	inj := nw.Inject(f)
	resp, err := cl.Broker(0).Request(ctx, initRequest())
	require.NoError(t, err)
	require.EqualValues(t, 51, resp.(*kmsg.InitProducerIDResponse).ErrorCode)
	require.Equal(t, 1, inj.Hits())
	// The same connection goes on, its broken-off TLS read unharmed.
	resp, err = cl.Broker(0).Request(ctx, initRequest())
	require.NoError(t, err)
	require.Zero(t, resp.(*kmsg.InitProducerIDResponse).ErrorCode)
	log := nw.Log()
	require.Equal(t, log[len(log)-2].Conn, log[len(log)-1].Conn)

	bad := faultnet.New(faultnet.WithTLS(&tls.Config{RootCAs: x509.NewCertPool()}))
	defer bad.Close()
	_, err = bad.Dial(ctx, "tcp", cluster.ListenAddrs()[0])
	var unknown *tls.CertificateVerificationError
	require.ErrorAs(t, err, &unknown)
}
