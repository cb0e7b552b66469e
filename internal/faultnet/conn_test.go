package faultnet_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
)

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
	buffered := bufio.NewReader(client)
	for want := range int32(3) {
		corr, _ := readFrame(t, buffered)
		require.Equal(t, want+1, corr)
	}
	require.NoError(t, <-answered)
}

func TestAnswerMadeHereWakesARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw, client, broker := pipe(t)
		defer nw.Close()
		defer broker.Close()
		f := forever(faultnet.Answer)
		f.Times, f.Code = 1, 25
		nw.Inject(f)
		got := make(chan []byte)
		go func() {
			defer close(got)
			for range 2 { // the second one after a wait, without a deadline
				p := make([]byte, 64)
				n, err := client.Read(p)
				if err != nil {
					return
				}
				got <- p[:n]
			}
		}()
		synctest.Wait() // the Read waits for the broker
		_, err := client.Write(frameOf(1, heartbeat("g")))
		require.NoError(t, err)
		require.EqualValues(t, 1, binary.BigEndian.Uint32((<-got)[4:]))
		synctest.Wait()
		sent := sendAll(client, frameOf(2, heartbeat("g")))
		_, err = io.CopyN(io.Discard, broker, int64(len(frameOf(2, heartbeat("g")))))
		require.NoError(t, err)
		require.NoError(t, <-sent)
		answered := sendAll(broker, answerFrame(2, "two"))
		require.Equal(t, answerFrame(2, "two"), <-got)
		require.NoError(t, <-answered)
	})
}

func TestProduceWithoutAnAnswer(t *testing.T) {
	produce := at(9, kmsg.NewPtrProduceRequest())
	produce.Acks = 0
	frame := frameOf(1, produce)
	beat := func(corr int32) []byte { return frameOf(corr, heartbeat("g")) }
	// pass sends frames and has the broker read them.
	pass := func(client, broker net.Conn, read int, frames ...[]byte) {
		t.Helper()
		sent := sendAll(client, frames...)
		_, err := io.CopyN(io.Discard, broker, int64(read))
		require.NoError(t, err)
		require.NoError(t, <-sent)
	}

	nw, client, broker := pipe(t)
	inj := nw.Inject(forever(faultnet.CutAfter))
	pass(client, broker, len(frame), frame)
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 1, inj.Hits())

	// Swallowed.
	nw, client, broker = pipe(t)
	inj = nw.Inject(faultnet.Fault{Key: produceKey, Node: faultnet.Any, Action: faultnet.Answer, Code: 6})
	_, err = client.Write(frame)
	require.NoError(t, err)
	require.Equal(t, 1, inj.Hits())
	require.False(t, nw.Log()[0].Delivered)

	// Let through, it does not stand in the way of the answers to others.
	own := faultnet.Fault{Key: 12, Node: faultnet.Any, Action: faultnet.Answer, Code: 25}
	pass(client, broker, len(frame)+len(beat(2)), frame, beat(2))
	answered := sendAll(broker, answerFrame(2, "two"))
	corr, _ := readFrame(t, client)
	require.EqualValues(t, 2, corr)
	require.NoError(t, <-answered)
	nw.Inject(own)
	_, err = client.Write(beat(3))
	require.NoError(t, err)
	corr, _ = readFrame(t, client)
	require.EqualValues(t, 3, corr)

	nw.Inject(own)
	pass(client, broker, len(frame), frame)
	pass(client, broker, len(beat(5)), beat(4), beat(5)) // 4 is not for the broker
	answered = sendAll(broker, answerFrame(5, "five"))
	for want := range int32(2) {
		corr, _ = readFrame(t, client)
		require.Equal(t, want+4, corr)
	}
	require.NoError(t, <-answered)
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
