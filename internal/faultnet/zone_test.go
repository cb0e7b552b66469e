package faultnet_test

import (
	"context"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
)

func TestDownAndUp(t *testing.T) {
	w := newWorld(t, 2)
	addrs := w.cluster.ListenAddrs()
	require.NoError(t, w.client.Ping(w.ctx))
	for node := range 2 {
		_, err := w.client.Broker(node).Request(w.ctx, kmsg.NewPtrListTransactionsRequest())
		require.NoError(t, err)
	}
	require.Positive(t, w.net.ConnsTo(addrs[0]))
	w.net.Down(addrs[0])
	require.Zero(t, w.net.ConnsTo(addrs[0]))
	require.Positive(t, w.net.ConnsTo(addrs[1]))
	_, err := w.net.Dial(w.ctx, "tcp", addrs[0])
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	w.net.Up(addrs[0])
	_, err = w.client.Broker(0).Request(w.ctx, kmsg.NewPtrListTransactionsRequest())
	require.NoError(t, err)

	w.net.DownAll()
	require.Zero(t, w.net.Conns())
	w.net.Up(addrs[1])
	_, err = w.client.Broker(0).Request(w.ctx, kmsg.NewPtrListTransactionsRequest())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	_, err = w.client.Broker(1).Request(w.ctx, kmsg.NewPtrListTransactionsRequest())
	require.NoError(t, err)
	w.net.UpAll()
	_, err = w.client.Broker(0).Request(w.ctx, kmsg.NewPtrListTransactionsRequest())
	require.NoError(t, err)
}

func TestBlackholeStallsBothWaysUntilHealed(t *testing.T) {
	nw, client, broker := pipe(t)
	frame := frameOf(1, heartbeat("g"))
	sent := sendAll(client, frame)
	_, err := io.CopyN(io.Discard, broker, int64(len(frame)))
	require.NoError(t, err)
	require.NoError(t, <-sent)

	nw.Blackhole("broker:9092")
	sendAll(broker, answerFrame(1, "answer"))
	_, err = client.Write(frameOf(2, heartbeat("g")))
	require.NoError(t, err)
	require.NoError(t, broker.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	_, err = broker.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, client.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	require.NoError(t, broker.SetReadDeadline(time.Time{}))
	require.NoError(t, client.SetReadDeadline(time.Time{}))
	nw.Heal("broker:9092")
	_, body := readFrame(t, client)
	require.Equal(t, "answer", string(body))
	_, err = io.ReadFull(broker, make([]byte, len(frame)))
	require.NoError(t, err)
}

func TestDialIntoABlackhole(t *testing.T) {
	w := newWorld(t, 1)
	addr := w.cluster.ListenAddrs()[0]
	w.net.BlackholeAll()
	type dialled struct {
		conn net.Conn
		err  error
	}
	done := make(chan dialled, 1)
	go func() {
		conn, err := w.net.Dial(w.ctx, "tcp", addr)
		done <- dialled{conn, err}
	}()
	require.Never(t, func() bool { return len(done) > 0 }, 20*time.Millisecond, time.Millisecond)
	w.net.HealAll()
	got := <-done
	require.NoError(t, got.err)
	require.NoError(t, got.conn.Close())

	synctest.Test(t, func(t *testing.T) {
		nw := faultnet.New()
		nw.Blackhole("broker:9092")
		begin := time.Now()
		_, err := nw.Dial(t.Context(), "tcp", "broker:9092")
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
		require.Equal(t, 10*time.Second, time.Since(begin))
		nw.Close()
		_, err = nw.Dial(t.Context(), "tcp", "broker:9092")
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestDownDuringADial(t *testing.T) {
	var nw *faultnet.Net
	client, broker := net.Pipe()
	nw = faultnet.New(faultnet.WithDialer(func(context.Context, string, string) (net.Conn, error) {
		nw.Down("broker:9092")
		return client, nil
	}))
	defer nw.Close()
	_, err := nw.Dial(t.Context(), "tcp", "broker:9092")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	_, err = broker.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the connection was left open")
}
