package faultnet_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
)

// echoBroker answers every request with eight bytes.
func echoBroker(b *testing.B) (addr string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				head := make([]byte, 12)
				for {
					if _, err := io.ReadFull(conn, head); err != nil {
						return
					}
					size := int64(binary.BigEndian.Uint32(head))
					if _, err := io.CopyN(io.Discard, conn, size-8); err != nil {
						return
					}
					_, _ = conn.Write(answerFrame(int32(binary.BigEndian.Uint32(head[8:])), "12345678"))
				}
			}()
		}
	}()
	return l.Addr().String()
}

// BenchmarkRoundTrip compares a connection over the network to a plain one.
func BenchmarkRoundTrip(b *testing.B) {
	addr := echoBroker(b)
	produce := at(13, kmsg.NewPtrProduceRequest())
	produce.Topics = []kmsg.ProduceRequestTopic{{Partitions: []kmsg.ProduceRequestTopicPartition{{
		Records: bytes.Repeat([]byte{1}, 256<<10),
	}}}}
	for _, payload := range []struct {
		name  string
		frame []byte
	}{
		{"small", frameOf(1, heartbeat("group"))},
		{"produce256KiB", frameOf(1, produce)},
	} {
		nw := faultnet.New(faultnet.WithBodyLimit(0))
		b.Cleanup(nw.Close)
		for _, way := range []struct {
			name string
			dial func(context.Context, string, string) (net.Conn, error)
		}{
			{"plain", new(net.Dialer).DialContext},
			{"faultnet", nw.Dial},
		} {
			b.Run(payload.name+"/"+way.name, func(b *testing.B) {
				conn, err := way.dial(b.Context(), "tcp", addr)
				require.NoError(b, err)
				defer func() { _ = conn.Close() }()
				answer := make([]byte, 16)
				b.SetBytes(int64(len(payload.frame)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := conn.Write(payload.frame); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(conn, answer); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
