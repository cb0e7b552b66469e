package faultnet_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ktxn/ktxn/internal/faultnet"
)

func TestLateRequestOutlivesTheClientsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw, client, broker := pipe(t)
		defer nw.Close()
		defer broker.Close()
		inj := nw.Inject(forever(faultnet.CutLate))
		require.NoError(t, client.SetDeadline(time.Now().Add(time.Second)))
		frame := frameOf(1, heartbeat("g"))
		_, err := client.Write(frame)
		require.NoError(t, err)
		_, err = client.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.Zero(t, nw.Conns())
		require.NoError(t, client.Close())

		time.Sleep(time.Minute)
		inj.Release()
		_, err = io.ReadFull(broker, make([]byte, len(frame)))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		_, err = broker.Write(bytes.Join([][]byte{answerFrame(77, "of another"), answerFrame(1, "late")}, nil))
		require.NoError(t, err)
		require.NoError(t, nw.Wait(t.Context(), func(log []faultnet.Request) bool { return log[0].Served }))
		require.False(t, nw.Log()[0].Answered)
		_, err = broker.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "the connection outlived its purpose")
	})
}

func TestDeadlineInterruptsARead(t *testing.T) {
	states := map[string]func(nw *faultnet.Net, client, broker net.Conn){
		"idle": func(*faultnet.Net, net.Conn, net.Conn) {},
		"blackhole": func(nw *faultnet.Net, _, _ net.Conn) {
			nw.Blackhole("broker:9092")
		},
		"answer held": func(nw *faultnet.Net, client, broker net.Conn) {
			nw.Inject(forever(faultnet.Delay))
			sendAll(client, frameOf(1, heartbeat("g")))
			_, _ = io.CopyN(io.Discard, broker, int64(len(frameOf(1, heartbeat("g")))))
			sendAll(broker, answerFrame(1, "late"))
		},
		"own answer held": func(nw *faultnet.Net, client, _ net.Conn) {
			f := forever(faultnet.Answer)
			f.Delay = time.Hour
			nw.Inject(f)
			_, _ = client.Write(frameOf(1, heartbeat("g")))
		},
		"request held": func(nw *faultnet.Net, client, _ net.Conn) {
			nw.Inject(forever(faultnet.DelayRequest))
			_, _ = client.Write(frameOf(1, heartbeat("g")))
		},
	}
	for name, enter := range states {
		for _, early := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				nw, client, broker := pipe(t)
				defer nw.Close()
				defer broker.Close()
				enter(nw, client, broker)
				begin := time.Now()
				if early {
					require.NoError(t, client.SetReadDeadline(begin.Add(time.Minute)))
				} else {
					go func() {
						time.Sleep(time.Minute) // the bubble's clock
						_ = client.SetReadDeadline(time.Now())
					}()
				}
				_, err := client.Read(make([]byte, 1))
				require.ErrorIs(t, err, os.ErrDeadlineExceeded, name)
				require.Equal(t, time.Minute, time.Since(begin), name)
			})
		}
	}
}

func TestReadGoesOnAfterADeadline(t *testing.T) {
	nw, client, broker := pipe(t)
	inj := nw.Inject(forever(faultnet.Delay))
	sendAll(client, frameOf(1, heartbeat("g")))
	_, err := io.CopyN(io.Discard, broker, int64(len(frameOf(1, heartbeat("g")))))
	require.NoError(t, err)
	sendAll(broker, answerFrame(1, "late"))
	require.NoError(t, client.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	require.NoError(t, client.SetDeadline(time.Time{}))
	inj.Release()
	corr, body := readFrame(t, client)
	require.EqualValues(t, 1, corr)
	require.Equal(t, "late", string(body))
}

func TestDelayLastsItsTime(t *testing.T) {
	for _, action := range []faultnet.Action{faultnet.Delay, faultnet.DelayRequest, faultnet.AnswerAfter, faultnet.Answer} {
		synctest.Test(t, func(t *testing.T) {
			nw, client, broker := pipe(t)
			defer nw.Close()
			defer broker.Close()
			f := forever(action)
			f.Delay = time.Minute
			nw.Inject(f)
			begin := time.Now()
			sent := sendAll(client, frameOf(1, heartbeat("g")))
			if action != faultnet.Answer {
				_, err := io.CopyN(io.Discard, broker, int64(len(frameOf(1, heartbeat("g")))))
				require.NoError(t, err)
				sendAll(broker, answerFrame(1, "\x00body"))
			}
			readFrame(t, client)
			require.Equal(t, time.Minute, time.Since(begin), action)
			require.NoError(t, <-sent)
		})
	}
}

func TestCloseInterruptsEverything(t *testing.T) {
	for name, closeIt := range map[string]func(nw *faultnet.Net, client net.Conn){
		"the client's close": func(_ *faultnet.Net, client net.Conn) { _ = client.Close() },
		"the net's close":    func(nw *faultnet.Net, _ net.Conn) { nw.Close() },
		"down":               func(nw *faultnet.Net, _ net.Conn) { nw.Down("broker:9092") },
	} {
		synctest.Test(t, func(t *testing.T) {
			nw, client, broker := pipe(t)
			defer nw.Close()
			defer broker.Close()
			nw.Blackhole("broker:9092")
			read, written := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := client.Read(make([]byte, 1))
				read <- err
			}()
			go func() { // until the stalled connection takes no more
				var err error
				for err == nil {
					_, err = client.Write(make([]byte, 1<<20))
				}
				written <- err
			}()
			synctest.Wait()
			require.Empty(t, read, name)
			require.Empty(t, written, name)
			closeIt(nw, client)
			require.Error(t, <-read, name)
			require.Error(t, <-written, name)
			require.Zero(t, nw.Conns(), name)
			_ = client.Close()
			require.ErrorIs(t, client.Close(), net.ErrClosed)
			_, err := client.Read(make([]byte, 1))
			require.ErrorIs(t, err, net.ErrClosed)
			_, err = client.Write(make([]byte, 1))
			require.ErrorIs(t, err, net.ErrClosed)
			require.ErrorIs(t, client.SetDeadline(time.Now()), net.ErrClosed)
		})
	}
}

func TestWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw, client, broker := pipe(t)
		defer nw.Close()
		defer broker.Close()
		// Held by a broker that does not read.
		require.NoError(t, client.SetWriteDeadline(time.Now().Add(time.Minute)))
		_, err := client.Write(frameOf(1, heartbeat("g")))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, client.SetWriteDeadline(time.Time{}))
		_, err = client.Write(frameOf(2, heartbeat("g")))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "half a frame was followed by another")
	})
	synctest.Test(t, func(t *testing.T) {
		nw, client, broker := pipe(t)
		defer nw.Close()
		defer broker.Close()
		// Held by a full queue.
		nw.Blackhole("broker:9092")
		begin := time.Now()
		require.NoError(t, client.SetWriteDeadline(begin.Add(time.Minute)))
		var err error
		for err == nil {
			_, err = client.Write(make([]byte, 1<<20))
		}
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(begin))
	})
}

func TestWriteDeadlineSparesWhatWasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw, client, broker := pipe(t)
		defer nw.Close()
		defer broker.Close()
		inj := nw.Inject(forever(faultnet.DelayRequest))
		frame := frameOf(1, heartbeat("g"))
		require.NoError(t, client.SetWriteDeadline(time.Now().Add(time.Second)))
		_, err := client.Write(frame)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, client.SetWriteDeadline(time.Now()))
		inj.Release()
		got := make([]byte, len(frame))
		_, err = io.ReadFull(broker, got)
		require.NoError(t, err)
		require.Equal(t, frame, got)
	})
}

// slowEnd is a connection whose Write returns late after Close.
type slowEnd struct{ net.Conn }

func (s slowEnd) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	time.Sleep(time.Minute)
	return n, err
}

func TestCloseWaitsForTheConnectionsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end, broker := net.Pipe()
		defer broker.Close()
		nw := faultnet.New(faultnet.WithDialer(func(context.Context, string, string) (net.Conn, error) {
			return slowEnd{end}, nil
		}))
		defer nw.Close()
		client, err := nw.Dial(t.Context(), "tcp", "broker:9092")
		require.NoError(t, err)
		inj := nw.Inject(forever(faultnet.DelayRequest))
		_, err = client.Write(frameOf(1, heartbeat("g")))
		require.NoError(t, err)
		inj.Release()
		synctest.Wait() // the goroutine is writing
		begin := time.Now()
		require.NoError(t, client.Close())
		require.Equal(t, time.Minute, time.Since(begin))
	})
}
