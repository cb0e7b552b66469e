package wire_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// frame is a request as it came over the wire.
type frame struct {
	conn         int // the connection, counted from 1
	key, version int16
	rest         []byte // after the client id: the header's tags, if any, and the body
}

// stubBroker is a broker that does no more than advertise versions and answer
// what it is told to. It knows no message but ApiVersions, so that what it
// receives is bytes and not somebody's idea of them.
type stubBroker struct {
	keys   map[int16]int16                    // key to the highest version
	answer func(f frame) (resp kmsg.Response) // nil: close the connection

	mu     sync.Mutex
	frames []frame
	conns  int
	serves sync.WaitGroup
}

// client starts the broker and returns a kgo client of it, whose first seed it
// is. It closes both with the test.
func (s *stubBroker) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	ctx, cancel := context.WithCancel(context.Background())
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers("stub:9092"),
		kgo.DisableClientMetrics(),
		kgo.MaxVersions(nil),
		kgo.Dialer(func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			s.mu.Lock()
			s.conns++
			n := s.conns
			s.mu.Unlock()
			context.AfterFunc(ctx, func() { ours.Close() })
			s.serves.Go(func() { s.serve(n, ours) })
			return theirs, nil
		}),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		cl.Close()
		cancel()
		s.serves.Wait()
	})
	return cl
}

func (s *stubBroker) serve(n int, conn net.Conn) {
	defer conn.Close()
	for {
		size := make([]byte, 4)
		if _, err := io.ReadFull(conn, size); err != nil {
			return
		}
		msg := make([]byte, binary.BigEndian.Uint32(size))
		if _, err := io.ReadFull(conn, msg); err != nil {
			return
		}
		r := kbin.Reader{Src: msg}
		f := frame{conn: n, key: r.Int16(), version: r.Int16()}
		corr := r.Int32()
		r.NullableString()
		f.rest = r.Src
		var resp kmsg.Response
		if f.key == 18 {
			resp = s.apiVersions(f)
		} else {
			s.mu.Lock()
			s.frames = append(s.frames, f)
			s.mu.Unlock()
			if resp = s.answer(f); resp == nil {
				return
			}
		}
		out := kbin.AppendInt32(make([]byte, 4), corr)
		if resp.IsFlexible() && f.key != 18 {
			out = append(out, 0) // the header's tags
		}
		out = resp.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

func (s *stubBroker) apiVersions(f frame) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = f.version
	resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{
		{ApiKey: 18, MaxVersion: f.version},
		// kgo takes the advertised keys for all there are only if Produce is
		// among them.
		{ApiKey: 0, MaxVersion: 9},
	}
	for key, version := range s.keys {
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: version})
	}
	return resp
}

func (s *stubBroker) seen() []frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]frame(nil), s.frames...)
}

func (s *stubBroker) dialed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}
