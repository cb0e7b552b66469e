package writer_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/ktxn/ktxn/internal/writer"
)

// What goes in comes out, nil apart from empty.
func TestRecordsAreEncodedAsTheyAre(t *testing.T) {
	bytesOrNil := rapid.OneOf(rapid.Just[[]byte](nil), rapid.SliceOfN(rapid.Byte(), 0, 200))
	record := rapid.Custom(func(t *rapid.T) *kgo.Record {
		r := &kgo.Record{Topic: "t", Key: bytesOrNil.Draw(t, "key"), Value: bytesOrNil.Draw(t, "value")}
		r.Timestamp = time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "time"))
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: rapid.String().Draw(t, "name"), Value: bytesOrNil.Draw(t, "header")})
		}
		return r
	})
	rapid.Check(t, func(rt *rapid.T) {
		recs := rapid.SliceOfN(record, 1, 20).Draw(rt, "records")
		s, c := newFakeSession(), newFakeCluster()
		c.set("t", 1, 1)
		lane := newFakeLane(c)
		w := writer.NewWith(s, c, lane, writer.DefaultOptions())
		src := w.Source(writer.SourceOptions{})
		tx := s.begin()
		want := make([]kgo.Record, len(recs))
		for i, r := range recs {
			want[i] = *r
			src.Produce(bg, r, func(_ *kgo.Record, err error) { require.NoError(rt, err) }, true)
		}
		require.NoError(rt, s.commit(bg, tx))
		require.NoError(rt, lane.broken())
		got := lane.logs["t/0"]
		require.Len(rt, got.records, len(recs))
		for i, g := range got.records {
			require.Equal(rt, want[i].Key, g.Key)
			require.Equal(rt, want[i].Value, g.Value)
			require.Equal(rt, want[i].Timestamp.UnixMilli(), got.times[i])
			require.Len(rt, g.Headers, len(want[i].Headers))
			for j, h := range g.Headers {
				require.Equal(rt, want[i].Headers[j].Key, h.Key)
				require.Equal(rt, want[i].Headers[j].Value, h.Value)
			}
		}
	})
}

// A record without a time gets the present one, by the millisecond.
func TestTimestamps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		tx := r.session.begin()
		var p promised
		for range 50 {
			rc := rec(0, "v")
			r.src.Produce(bg, rc, p.promise, true)
			require.LessOrEqual(t, time.Since(rc.Timestamp).Abs(), time.Millisecond)
			pass(700 * time.Microsecond)
		}
		pass(time.Hour)
		rc := rec(0, "v")
		r.src.Produce(bg, rc, p.promise, true)
		require.LessOrEqual(t, time.Since(rc.Timestamp).Abs(), time.Millisecond, "after an idle hour")
		own := rec(0, "v")
		own.Timestamp = time.UnixMicro(1_700_000_000_123_999)
		r.src.Produce(bg, own, p.promise, true)
		require.NoError(t, r.session.commit(bg, tx))
		require.Equal(t, int64(1_700_000_000_123), own.Timestamp.UnixMilli())
		require.Zero(t, own.Timestamp.Nanosecond()%1e6)
	})
}

// Every codec is sent as such if that is smaller, and plain if it is not.
func TestCompression(t *testing.T) {
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			// In no bubble: the zstd decoder's finalizer closes a channel of its.
			hooks := &hookLog{}
			r := newRig(t, func(r *rig, o *writer.Options) {
				o.Compressor, _ = kgo.DefaultCompressor(codec)
				r.cluster.hooks = append(r.cluster.hooks, hooks)
			})
			tx := r.session.begin()
			var p promised
			want := []string{strings.Repeat("abc", 10_000), strings.Repeat("x", 50_000)}
			r.produce(&p, 0, want...)
			noise := make([]byte, 64)
			rng := newRand(1)
			for i := range noise {
				noise[i] = byte(rng.Uint32())
			}
			r.produce(&p, 1, string(noise))
			require.NoError(t, r.session.commit(bg, tx))
			p.require(t, 3, nil)
			require.Equal(t, want, r.lane.values("t", 0))
			for _, rc := range p.records {
				switch {
				case rc.Partition == 1:
					require.Zero(t, rc.Attrs.CompressionType(), "noise does not get smaller")
				case name != "none":
					require.NotZero(t, rc.Attrs.CompressionType())
				}
			}
			for _, m := range hooks.batches {
				if name == "none" || m.CompressionType == 0 {
					require.Equal(t, m.UncompressedBytes, m.CompressedBytes)
					continue
				}
				require.Less(t, m.CompressedBytes, m.UncompressedBytes/10)
			}
		})
	}
}

// brokenCompressor fails, or returns more than it was given.
type brokenCompressor struct{ out []byte }

func (c brokenCompressor) Compress(*bytes.Buffer, []byte, ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	return c.out, kgo.CodecError
}

func TestCompressorThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ *rig, o *writer.Options) { o.Compressor = brokenCompressor{} })
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, strings.Repeat("a", 1000))
		require.NoError(t, r.session.commit(bg, tx))
		p.require(t, 1, nil)
		require.Zero(t, p.records[0].Attrs.CompressionType())
	})
}

// A record that does not fit into a batch fails before anything is sent.
func TestRecordTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallBatches)
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, strings.Repeat("x", 512))
		require.ErrorIs(t, r.session.commit(bg, tx), kerr.MessageTooLarge)
		var e *writer.TooLargeError
		require.ErrorAs(t, p.errs[0], &e)
		require.Equal(t, "t", e.Topic)
		require.EqualValues(t, 512, e.Limit)
		require.Greater(t, e.Size, int32(512+61))
		require.ErrorContains(t, e, "larger than the limit of 512")
		require.Empty(t, r.lane.sent())
		require.NoError(t, r.session.abort(bg, tx))

		// The largest that fits is sent.
		tx = r.session.begin()
		var q promised
		for n := 512; ; n-- {
			q = promised{}
			r.src.Produce(bg, rec(0, strings.Repeat("x", n)), q.promise, true)
			synctest.Wait()
			if q.errs[0] == nil {
				break
			}
			require.NoError(t, r.session.abort(bg, tx))
			tx = r.session.begin()
		}
		require.NoError(t, r.session.commit(bg, tx))
		last := r.lane.logs["t/0"]
		require.Equal(t, 512, last.largest)
	})
}

// The broker's limit is lower: batches go again in halves, in order, until they
// fit.
func TestBatchTooLargeForTheBrokerIsSplit(t *testing.T) {
	for _, inflight := range []int{1, 5} {
		t.Run(fmt.Sprint(inflight), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(_ *rig, o *writer.Options) {
					o.BatchMaxBytes = func(string) int32 { return 16 << 10 }
					o.MaxInflight = inflight
				})
				r.session.gate = make(chan struct{})
				r.lane.log("t", 0).maxSize = 1000
				r.lane.delay = time.Millisecond
				tx := r.session.begin()
				var p promised
				want := numbered("value-", 5000)
				r.produce(&p, 0, want...)
				close(r.session.gate)
				require.NoError(t, r.session.commit(bg, tx))
				p.require(t, len(want), nil)
				require.Equal(t, want, r.lane.values("t", 0))
				require.Equal(t, want, p.values())
				for i, rc := range p.records {
					require.EqualValues(t, i, rc.Offset)
				}
			})
		})
	}
}

// A single record that the broker refuses fails, and those behind it.
func TestRecordTooLargeForTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.session.gate = make(chan struct{})
		r.lane.log("t", 0).maxSize = 200
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a", "b", strings.Repeat("x", 300), "c")
		close(r.session.gate)
		require.ErrorIs(t, r.session.commit(bg, tx), kerr.MessageTooLarge)
		require.Len(t, p.errs, 4)
		require.NoError(t, p.errs[0])
		require.NoError(t, p.errs[1])
		var e *writer.TooLargeError
		require.ErrorAs(t, p.errs[2], &e)
		require.Zero(t, e.Limit)
		require.ErrorContains(t, e, "than the broker allows")
		require.Error(t, p.errs[3])
		require.NoError(t, r.session.abort(bg, tx))
	})
}

// A batch is never split while its transaction is being aborted.
func TestNoSplitInAnAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.session.gate = make(chan struct{})
		hold := make(chan struct{})
		r.lane.handle = once(1, func(*kmsg.ProduceRequest) *reply { return &reply{code: 10, wait: hold} })
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a", "b")
		close(r.session.gate)
		synctest.Wait()
		done := make(chan error)
		go func() { done <- r.session.abort(bg, tx) }()
		synctest.Wait()
		close(hold)
		require.NoError(t, <-done)
		p.require(t, 2, kgo.ErrAborting)
		require.Len(t, r.lane.sent(), 1)
	})
}
