package faultnet_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
)

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

func TestFramesInPiecesAndSeveralInOneWrite(t *testing.T) {
	frames := [][]byte{
		frameOf(1, at(3, kmsg.NewPtrApiVersionsRequest())),
		frameOf(2, heartbeat("g")),
		frameOf(3, at(2, kmsg.NewPtrAddOffsetsToTxnRequest())),
	}
	stream := bytes.Join(frames, nil)
	for name, faults := range map[string][]faultnet.Fault{"passing": nil, "collected": {never()}} {
		for _, step := range []int{1, 2, 5, 13, len(stream)} {
			nw, client, broker := pipe(t)
			for _, f := range faults {
				nw.Inject(f)
			}
			go func() {
				for rest := stream; len(rest) > 0; rest = rest[min(step, len(rest)):] {
					if _, err := client.Write(rest[:min(step, len(rest))]); err != nil {
						return
					}
				}
			}()
			got := make([]byte, len(stream))
			_, err := io.ReadFull(broker, got)
			require.NoError(t, err)
			require.Equal(t, stream, got, "%s in steps of %d", name, step)

			log := nw.Log()
			require.Len(t, log, 3)
			for i, key := range []int16{18, 12, 25} {
				require.Equal(t, key, log[i].Key)
				require.EqualValues(t, i+1, log[i].CorrelationID)
				require.EqualValues(t, i+1, log[i].Seq)
				require.Equal(t, "raw", log[i].ClientID)
				require.Equal(t, len(frames[i])-4, log[i].Size)
				_, err := log[i].Decode()
				require.NoError(t, err)
			}
		}
	}
}

func TestAnswersInPieces(t *testing.T) {
	stream := bytes.Join([][]byte{answerFrame(1, "one"), answerFrame(2, "two"), answerFrame(3, "three")}, nil)
	for name, read := range map[string]func(io.Reader) io.Reader{
		"whole":    func(r io.Reader) io.Reader { return r },
		"one byte": iotest.OneByteReader,
		"half":     iotest.HalfReader,
	} {
		nw, client, broker := pipe(t)
		inj := nw.Inject(faultnet.Fault{
			Key: 12, Node: faultnet.Any, Skip: 1, Action: faultnet.Delay, Delay: time.Millisecond,
		})
		sent := sendAll(client, frameOf(1, heartbeat("a")), frameOf(2, heartbeat("b")), frameOf(3, heartbeat("c")))
		_, err := io.CopyN(io.Discard, broker, int64(3*len(frameOf(1, heartbeat("a")))))
		require.NoError(t, err)
		require.NoError(t, <-sent)
		require.Equal(t, 1, inj.Hits())
		go func() {
			for _, b := range stream {
				_, _ = broker.Write([]byte{b})
			}
		}()
		got := make([]byte, len(stream))
		_, err = io.ReadFull(read(client), got)
		require.NoError(t, err)
		require.Equal(t, stream, got, name)
		for _, r := range nw.Log() {
			require.True(t, r.Answered)
		}
	}
}

func TestAnswersMadeHereKeepTheOrder(t *testing.T) {
	nw, client, broker := pipe(t)
	nw.Inject(faultnet.Fault{Key: 12, Node: faultnet.Any, Action: faultnet.Answer, Code: 25, Match: func(r faultnet.Request) bool {
		return r.CorrelationID == 2
	}})
	sent := sendAll(client, frameOf(1, heartbeat("a")), frameOf(2, heartbeat("b")), frameOf(3, heartbeat("c")))
	_, err := io.CopyN(io.Discard, broker, int64(2*len(frameOf(1, heartbeat("a")))))
	require.NoError(t, err)
	require.NoError(t, <-sent)
	// The broker answers 1 and 3 together; 2 belongs between them.
	answered := sendAll(broker, answerFrame(1, "one"), answerFrame(3, "three"))
	for want := range int32(3) {
		corr, _ := readFrame(t, client)
		require.Equal(t, want+1, corr)
	}
	require.NoError(t, <-answered)
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
		inj.Release()
		got := make([]byte, len(frame))
		_, err = io.ReadFull(broker, got)
		require.NoError(t, err)
		require.Equal(t, frame, got)
	})
}

func TestRequestsBehindAHeldOneWait(t *testing.T) {
	nw, client, broker := pipe(t)
	inj := nw.Inject(faultnet.Fault{Key: 12, Node: faultnet.Any, Action: faultnet.DelayRequest})
	stream := bytes.Join([][]byte{frameOf(1, heartbeat("a")), frameOf(2, heartbeat("b"))}, nil)
	_, err := client.Write(stream)
	require.NoError(t, err)
	inj.Remove()
	got := make([]byte, len(stream))
	_, err = io.ReadFull(broker, got)
	require.NoError(t, err)
	require.Equal(t, stream, got)
	require.NoError(t, nw.Wait(t.Context(), func(log []faultnet.Request) bool { return log[1].Delivered }))
}

func TestGarbagePassesUntouched(t *testing.T) {
	nw, client, broker := pipe(t)
	nw.Inject(forever(faultnet.CutBefore))
	garbage := []byte("GET / HTTP/1.1\r\n\r\n")
	garbage[0] = 0xff // a negative size
	sendAll(client, garbage)
	got := make([]byte, len(garbage))
	_, err := io.ReadFull(broker, got)
	require.NoError(t, err)
	require.Equal(t, garbage, got)
	sendAll(broker, garbage)
	_, err = io.ReadFull(client, got)
	require.NoError(t, err)
	require.Equal(t, garbage, got)
	require.Empty(t, nw.Log())
}

func TestSaslTokensWithoutFramesPass(t *testing.T) {
	nw, client, broker := pipe(t)
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Mechanism = "GSSAPI"
	stream := append(frameOf(1, req), "\x00\x00\x00\x20token with no header at all....."...)
	sendAll(client, stream)
	got := make([]byte, len(stream))
	_, err := io.ReadFull(broker, got)
	require.NoError(t, err)
	require.Equal(t, stream, got)
	require.Len(t, nw.Log(), 1)
}

func TestHangUpInTheMiddleOfAnAnswer(t *testing.T) {
	_, client, broker := pipe(t)
	go func() {
		_, _ = broker.Write(answerFrame(9, "answer")[:6])
		_ = broker.Close()
	}()
	got, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Equal(t, answerFrame(9, "answer")[:6], got)
}

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
