package faultnet_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
)

// pieces writes data in pieces whose lengths cuts gives.
func pieces(conn net.Conn, data, cuts []byte) error {
	for i := 0; len(data) > 0; i++ {
		n := len(data)
		if len(cuts) > 0 {
			n = min(n, 1+int(cuts[i%len(cuts)]))
		}
		if _, err := conn.Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// withheld is how much of the end of a stream of requests may stay in the
// connection: an unfinished header, or an unfinished frame where whole ones are
// judged.
func withheld(stream []byte, judged bool) int {
	for len(stream) >= 4 {
		size := int64(int32(binary.BigEndian.Uint32(stream)))
		switch {
		case size < 10 || size > 1<<30:
			return 0
		case len(stream) < 14:
			return len(stream)
		}
		id := int64(int16(binary.BigEndian.Uint16(stream[12:])))
		switch {
		case id < -1 || id > size-10:
			return 0
		case int64(len(stream)) < 14+id:
			return len(stream)
		case int64(len(stream)) < 4+size && judged:
			return len(stream)
		case int64(len(stream)) < 4+size:
			return 0
		case binary.BigEndian.Uint32(stream[4:]) == 17<<16:
			return 0 // raw tokens follow
		}
		stream = stream[4+size:]
	}
	return len(stream)
}

func FuzzFrames(f *testing.F) {
	two := append(frameOf(1, heartbeat("a")), frameOf(2, at(13, kmsg.NewPtrProduceRequest()))...)
	f.Add(two, []byte{0}, false)
	f.Add(two, []byte{6, 0, 3}, true)
	f.Add(two[:len(two)-1], []byte(nil), true)
	f.Add(append(frameOf(1, kmsg.NewPtrSASLHandshakeRequest()), "raw tokens"...), []byte{1}, false)
	f.Add(append(frameOf(1, kmsg.NewPtrSASLHandshakeRequest()), "x"...), []byte{1}, true)
	f.Add(append(answerFrame(1, "one"), answerFrame(2, "")...), []byte{2}, false)
	f.Add([]byte{0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0}, []byte{3}, true)
	f.Add([]byte{0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe}, []byte{}, true)
	f.Add([]byte{0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 1, 1}, []byte{}, false)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 2}, []byte{0}, false)
	f.Fuzz(func(t *testing.T, stream, cuts []byte, judged bool) {
		nw, client, broker := pipe(t)
		if judged {
			nw.Inject(never())
		}
		sent := make(chan error, 1)
		go func() {
			err := pieces(client, stream, cuts)
			_ = client.Close()
			sent <- err
		}()
		got, err := io.ReadAll(broker)
		require.NoError(t, err)
		require.NoError(t, <-sent)
		require.LessOrEqual(t, len(got), len(stream))
		require.Equal(t, stream[:len(got)], append([]byte{}, got...))
		require.Equal(t, withheld(stream, judged), len(stream)-len(got))

		// The other way round nothing stays behind.
		_, client, broker = pipe(t)
		go func() {
			_ = pieces(broker, stream, cuts)
			_ = broker.Close()
		}()
		got = nil
		for i, err := 0, error(nil); !errors.Is(err, io.EOF); i++ {
			n := 64
			if len(cuts) > 0 {
				n = 1 + int(cuts[len(cuts)-1-i%len(cuts)])
			}
			p := make([]byte, n)
			n, err = client.Read(p)
			if err != nil {
				require.ErrorIs(t, err, io.EOF)
			}
			got = append(got, p[:n]...)
		}
		require.Equal(t, append([]byte{}, stream...), append([]byte{}, got...))
	})
}

// FuzzActions does each action to arbitrary requests and answers: whatever they
// are, nothing panics and everything ends.
func FuzzActions(f *testing.F) {
	requests := append(frameOf(0, heartbeat("a")), frameOf(1, at(3, kmsg.NewPtrAddPartitionsToTxnRequest()))...)
	answers := append(answerFrame(0, "\x00\x00\x00\x00\x00\x00\x00\x00"), answerFrame(1, "\x00\x00\x00\x00\x00\x00\x00\x00")...)
	for action := byte(1); action <= byte(faultnet.Rewrite); action++ {
		f.Add(requests, answers, []byte{7}, action)
		f.Add(answers, requests, []byte{2, 200}, action)
	}
	f.Fuzz(func(t *testing.T, requests, answers, cuts []byte, action byte) {
		nw, client, broker := pipe(t)
		fault := forever(faultnet.Action(action))
		fault.Code, fault.Delay = 51, time.Nanosecond
		inj := nw.Inject(fault)
		read := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, client)
			close(read)
		}()
		taken := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, broker)
			close(taken)
		}()
		_ = pieces(client, requests, cuts)
		_ = broker.SetWriteDeadline(time.Now().Add(5 * time.Millisecond)) // the client may have gone
		_ = pieces(broker, answers, cuts)
		_ = broker.Close()
		<-read
		<-taken
		nw.Close()
		require.Zero(t, nw.Conns())
		require.LessOrEqual(t, inj.Hits(), nw.Requests(faultnet.Any))
	})
}
