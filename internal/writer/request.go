package writer

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// request is one Produce: one batch for each of some partitions of one broker.
// It encodes the batches' bytes where they lie, since kmsg's own request would
// need them in one piece.
type request struct {
	run     *run
	sink    *sink
	batches []*batch // of one topic side by side
	topics  int
	size    int
	timeout int32 // ms
	max     int16 // highest version it may have
	version int16

	voice atomic.Uint32 // what AppendTo does and has done

	answered  bool // what follows is set, under Writer.mu
	resp      *kmsg.ProduceResponse
	maybeSent bool
	err       error
}

// A request that no one stands behind any more says nothing when it is written
// at last: it names no topic, so a broker answers and does nothing.
const (
	voiceOpen   uint32 = iota // not encoded yet
	voiceSpoken               // encoded with its batches
	voiceSilent               // encoded without, now or later
)

// encoded reports whether a broker may have got its batches.
func (q *request) encoded() bool { return q.voice.Load() == voiceSpoken }

// silence keeps a request that is not encoded yet from saying anything, and
// reports whether it came in time.
func (q *request) silence() bool {
	return q.voice.CompareAndSwap(voiceOpen, voiceSilent) || q.voice.Load() == voiceSilent
}

// speaks decides whether this call of AppendTo encodes the batches. It may be
// called again, for a new connection after nothing could be written to the old
// one; once the run is over it is too late for that.
func (q *request) speaks() bool {
	if q.run.mute.Load() {
		q.silence()
	} else {
		q.voice.CompareAndSwap(voiceOpen, voiceSpoken)
	}
	return q.voice.Load() == voiceSpoken && !q.run.over.Load()
}

// Key is that of Produce.
func (*request) Key() int16 { return 0 }

// MaxVersion is 13 where topic ids are known, 12 where they are not, and 11
// under the rules before KIP-890: from 12 on a broker takes a Produce for the
// registration of its partitions.
func (q *request) MaxVersion() int16 { return q.max }

// NeededVersion is the lowest version that can be sent: 12 under the rules of
// KIP-890, else 3, the first that knows the record batch.
func (q *request) NeededVersion() int16 {
	if q.run.rules2 {
		return 12
	}
	return 3
}

func (q *request) SetVersion(v int16) { q.version = v }
func (q *request) GetVersion() int16  { return q.version }
func (q *request) IsFlexible() bool   { return q.version >= 9 }
func (q *request) Timeout() int32     { return q.timeout }

// ResponseKind returns an empty answer.
func (q *request) ResponseKind() kmsg.Response {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = q.version
	return resp
}

// ReadFrom is for brokers; the writer only writes.
func (*request) ReadFrom([]byte) error {
	return errors.New("a produce request of the writer cannot be read back")
}

// perPartition bounds what a batch adds to a request besides itself, topics'
// names aside.
const perPartition = 16

// AppendTo encodes the request.
func (q *request) AppendTo(dst []byte) []byte {
	speaks := q.speaks()
	id := q.run.w.transactionalID
	topics := 0
	if speaks {
		topics = q.topics
		dst = slices.Grow(dst, q.size+len(id)+64)
	}
	flexible := q.IsFlexible()
	if flexible {
		dst = kbin.AppendCompactNullableString(dst, &id)
	} else {
		dst = kbin.AppendNullableString(dst, &id)
	}
	dst = kbin.AppendInt16(dst, -1) // acks: all
	dst = kbin.AppendInt32(dst, q.timeout)
	if flexible {
		dst = kbin.AppendCompactArrayLen(dst, topics)
	} else {
		dst = kbin.AppendArrayLen(dst, topics)
	}
	if speaks {
		for rest := q.batches; len(rest) > 0; {
			n := sameTopic(rest)
			dst = q.appendTopic(dst, rest[:n], flexible)
			rest = rest[n:]
		}
	}
	if flexible {
		dst = append(dst, 0) // no tags
	}
	return dst
}

// sameTopic returns how many of the first batches are of one topic.
func sameTopic(batches []*batch) int {
	n := 1
	for n < len(batches) && batches[n].p.topic == batches[0].p.topic {
		n++
	}
	return n
}

func (q *request) appendTopic(dst []byte, batches []*batch, flexible bool) []byte {
	p := batches[0].p
	switch {
	case q.version >= 13:
		dst = append(dst, p.topicID[:]...)
	case flexible:
		dst = kbin.AppendCompactString(dst, p.topic.name)
	default:
		dst = kbin.AppendString(dst, p.topic.name)
	}
	if !flexible {
		dst = kbin.AppendArrayLen(dst, len(batches))
		for _, b := range batches {
			dst = kbin.AppendInt32(dst, b.p.id)
			dst = kbin.AppendInt32(dst, int32(b.size()))
			dst = append(append(dst, b.header[:]...), b.buf...)
		}
		return dst
	}
	dst = kbin.AppendCompactArrayLen(dst, len(batches))
	for _, b := range batches {
		dst = kbin.AppendInt32(dst, b.p.id)
		dst = kbin.AppendUvarint(dst, uint32(b.size())+1) // a compact length
		dst = append(append(dst, b.header[:]...), b.buf...)
		dst = append(dst, 0) // no tags
	}
	return append(dst, 0)
}
