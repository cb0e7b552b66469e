package writer_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/writer"
)

// sinkLane encodes requests and acknowledges them, and does nothing else.
type sinkLane struct{ buf []byte }

func (l *sinkLane) Produce(_ int32, req kmsg.Request, written func(), done func(kmsg.Response, bool, error)) {
	go func() {
		req.SetVersion(13)
		l.buf = req.AppendTo(l.buf[:0]) // one at a time: the next comes after written
		body := kmsg.NewPtrProduceRequest()
		body.Version = 13
		err := body.ReadFrom(l.buf)
		resp := kmsg.NewPtrProduceResponse()
		resp.Version = 13
		for _, rt := range body.Topics {
			at := kmsg.NewProduceResponseTopic()
			at.TopicID = rt.TopicID
			for _, rp := range rt.Partitions {
				ap := kmsg.NewProduceResponseTopicPartition()
				ap.Partition = rp.Partition
				at.Partitions = append(at.Partitions, ap)
			}
			resp.Topics = append(resp.Topics, at)
		}
		written()
		done(resp, true, err)
	}()
}

// benchValues are values that compress about as well as JSON does.
func benchValues(size int) [][]byte {
	values := make([][]byte, 256)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range values {
		var b bytes.Buffer
		for b.Len() < size {
			fmt.Fprintf(&b, `{"id":%d,"name":"customer-%d"},`, rng.IntN(1e6), rng.IntN(500))
		}
		values[i] = b.Bytes()[:size]
	}
	return values
}

// BenchmarkEncode is what a record costs in its batch, sum included.
func BenchmarkEncode(b *testing.B) {
	for _, size := range []int{100, 1000} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			values := benchValues(size)
			r := &kgo.Record{Timestamp: time.Now()}
			var e writer.Encoder
			b.ReportAllocs()
			b.SetBytes(int64(size))
			i := 0
			for b.Loop() {
				r.Value = values[i%len(values)]
				i++
				if e.Add(r) > 1_000_000 {
					e.Finish()
				}
			}
		})
	}
}

// BenchmarkProduce is the whole path of a record but for the network, in
// transactions of 10,000.
func BenchmarkProduce(b *testing.B) {
	for _, size := range []int{100, 1000} {
		for _, codec := range []struct {
			name string
			c    kgo.CompressionCodec
		}{{"none", kgo.NoCompression()}, {"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()}} {
			b.Run(fmt.Sprintf("%dB/%s", size, codec.name), func(b *testing.B) {
				benchProduce(b, size, codec.c)
			})
		}
	}
}

func benchProduce(b *testing.B, size int, codec kgo.CompressionCodec) {
	s, c := newFakeSession(), newFakeCluster()
	c.set("t", 1, 1, 1, 1, 1, 1, 1)
	o := writer.DefaultOptions()
	o.Compressor, _ = kgo.DefaultCompressor(codec)
	o.Codecs = []kgo.CompressionCodec{codec}
	src := writer.NewWith(s, c, &sinkLane{}, o).Source(writer.SourceOptions{})
	values := benchValues(size)
	const perTxn = 10_000
	recs := make([]kgo.Record, perTxn)
	ctx := context.Background()
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			b.Error(err)
		}
	}
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for n := 0; n < b.N; {
		tx := s.begin()
		for i := 0; i < perTxn && n < b.N; i, n = i+1, n+1 {
			recs[i] = kgo.Record{Topic: "t", Value: values[i%len(values)]}
			src.Produce(ctx, &recs[i], promise, true)
		}
		if err := s.commit(ctx, tx); err != nil {
			b.Fatal(err)
		}
	}
}
