package writer

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The header of a record batch, format 2.
const (
	headerLen = 61

	atLength      = 8
	atLeaderEpoch = 12
	atMagic       = 16
	atCRC         = 17
	atAttributes  = 21
	atLastOffset  = 23
	atFirstTime   = 27
	atMaxTime     = 35
	atProducerID  = 43
	atEpoch       = 51
	atSequence    = 53
	atCount       = 57

	transactionalBit = 0x10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type batchState uint8

const (
	batchOpen   batchState = iota // takes records
	batchClosed                   // takes none; not ready to be sent yet
	batchReady                    // its bytes are final
	batchSent                     // in a request
	batchAcked                    // accepted, but an older one is not yet
	batchFailed                   // will not be sent any more
)

// done reports whether nothing more happens to a batch than its promises.
func (s batchState) done() bool { return s >= batchAcked }

// batch is one record batch of a partition. Writer.mu guards it, except that
// while busy a worker has buf and header, and while in a request AppendTo reads
// them.
type batch struct {
	p     *partition
	state batchState
	recs  []rec
	buf   []byte // encoded records; what they were compressed to from then on
	ctxs  []context.Context
	born  time.Time

	firstTime, maxTime int64
	n                  int // records, from when it is closed
	raw, sent          int // length of the encoded records, and as sent
	codec              kgo.CompressionCodecType

	header     [headerLen]byte
	seq        int32
	sequenced  bool // seq is set
	compressed bool // or found not to be worth it
	busy       bool // a worker has it
	ghost      bool // its promises have run although it is in a request

	req    *request                            // the one it is in
	answer *kmsg.ProduceResponseTopicPartition // while it is worked off
	tries  int
	unsure bool // some attempt may have been appended

	base       int64 // what the answer said
	appendTime int64
	err        error
	maybeSent  bool
}

// size is the length of the whole batch as it stands.
func (b *batch) size() int { return headerLen + len(b.buf) }

// fits returns whether r can be added within limit, and the lengths needed to
// do so.
func (b *batch) fits(ts int64, r *kgo.Record, limit int) (body, total int, ok bool) {
	delta := int64(0)
	if len(b.recs) > 0 {
		delta = ts - b.firstTime
	}
	body = bodyLen(r, delta, int64(len(b.recs)))
	total = varintLen(int64(body)) + body
	// A record's own lengths are int32, as is the batch's.
	ok = b.size()+total <= limit && len(b.recs) < math.MaxInt32
	return body, total, ok
}

// add encodes a record that fits.
func (b *batch) add(rc rec, ts int64, body, total int) {
	if len(b.recs) == 0 {
		b.firstTime, b.maxTime = ts, ts
	}
	b.maxTime = max(b.maxTime, ts)
	b.buf = buffers.grow(b.buf, len(b.buf)+total)
	b.buf = appendRecord(b.buf, rc.r, body, ts-b.firstTime, int64(len(b.recs)))
	if len(b.recs) == cap(b.recs) {
		b.recs = records.grow(b.recs, len(b.recs)+1)
	}
	b.recs = append(b.recs, rc)
}

// heed notes a context that drops the batch if it ends before the batch is
// written.
func (b *batch) heed(ctx context.Context) {
	if ctx == nil || ctx.Done() == nil {
		return
	}
	if n := len(b.ctxs); n > 0 && b.ctxs[n-1] == ctx {
		return
	}
	b.ctxs = append(b.ctxs, ctx)
}

// ended returns the error of the first of the batch's contexts that has ended.
func (b *batch) ended() error { return endedContext(b.ctxs) }

func endedContext(ctxs []context.Context) error {
	for _, ctx := range ctxs {
		if err := contextError(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stamp fills the header in and sums the batch. The bytes are final from then
// on.
func (b *batch) stamp(pid int64, epoch int16, seq int32) {
	h := b.header[:]
	clear(h)
	be := binary.BigEndian
	be.PutUint32(h[atLength:], uint32(b.size()-atLeaderEpoch))
	be.PutUint32(h[atLeaderEpoch:], math.MaxUint32) // -1: producers do not know it
	h[atMagic] = 2
	be.PutUint16(h[atAttributes:], uint16(transactionalBit|b.codec&7))
	be.PutUint32(h[atLastOffset:], uint32(b.n-1))
	be.PutUint64(h[atFirstTime:], uint64(b.firstTime))
	be.PutUint64(h[atMaxTime:], uint64(b.maxTime))
	be.PutUint64(h[atProducerID:], uint64(pid))
	be.PutUint16(h[atEpoch:], uint16(epoch))
	be.PutUint32(h[atSequence:], uint32(seq))
	be.PutUint32(h[atCount:], uint32(b.n))
	sum := crc32.Update(0, castagnoli, h[atAttributes:])
	sum = crc32.Update(sum, castagnoli, b.buf)
	be.PutUint32(h[atCRC:], sum)
}

// attrs are the record attributes that the batch gives its records.
func (b *batch) attrs() kgo.RecordAttrs {
	o := kgo.RecordAttrsOpts{Codec: b.codec, Transactional: true}
	if b.appendTime >= 0 {
		o.TimestampType = 1
	}
	return kgo.NewRecordAttrs(o)
}

// release gives the encoded bytes back. Nobody may be reading them.
func (b *batch) release() {
	if b.buf != nil {
		buffers.put(b.buf)
		b.buf = nil
	}
}

// split makes two batches of one that was too large for the broker, with the
// sequence numbers that it had. The records are encoded again: what was sent
// may be compressed.
func (b *batch) split() (*batch, *batch) {
	half := len(b.recs) / 2
	first, second := b.part(b.recs[:half], b.seq), b.part(b.recs[half:], addSequence(b.seq, half))
	b.release()
	records.put(b.recs)
	b.recs = nil
	return first, second
}

func (b *batch) part(recs []rec, seq int32) *batch {
	h := &batch{
		p: b.p, state: batchClosed, born: b.born, ctxs: slices.Clone(b.ctxs),
		seq: seq, sequenced: true, tries: b.tries, appendTime: -1, base: -1,
	}
	for _, rc := range recs {
		ts := rc.r.Timestamp.UnixMilli()
		body, total, _ := h.fits(ts, rc.r, math.MaxInt)
		h.add(rc, ts, body, total)
	}
	h.n, h.raw = len(h.recs), len(h.buf)
	return h
}

// addSequence returns the sequence number n records after seq. They wrap from
// MaxInt32 to 0.
func addSequence(seq int32, n int) int32 {
	return int32((int64(seq) + int64(n)) % (math.MaxInt32 + 1))
}
