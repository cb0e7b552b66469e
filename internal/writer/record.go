package writer

import (
	"encoding/binary"
	"math/bits"

	"github.com/twmb/franz-go/pkg/kgo"
)

// rec is a record that was handed to Produce, with what is owed for it.
type rec struct {
	r       *kgo.Record
	promise func(*kgo.Record, error)
	src     *Source
	size    int64 // user bytes, as counted when it was taken
}

// userSize is what kgo counts against MaxBufferedBytes.
func userSize(r *kgo.Record) int64 {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// varintLen is the length of v as a zigzag varint.
func varintLen(v int64) int {
	return (bits.Len64(uint64(v<<1)^uint64(v>>63)|1) + 6) / 7
}

func bytesLen(n int) int { return varintLen(int64(n)) + n }

func nullableLen(b []byte) int {
	if b == nil {
		return 1
	}
	return bytesLen(len(b))
}

// bodyLen is the length of a record in a batch without its length prefix.
func bodyLen(r *kgo.Record, timeDelta, offsetDelta int64) int {
	n := 1 + // attributes
		varintLen(timeDelta) + varintLen(offsetDelta) +
		nullableLen(r.Key) + nullableLen(r.Value) +
		varintLen(int64(len(r.Headers)))
	for i := range r.Headers {
		n += bytesLen(len(r.Headers[i].Key)) + nullableLen(r.Headers[i].Value)
	}
	return n
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // -1 as a zigzag varint
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

// appendRecord encodes r. body is its bodyLen, and dst has room for it.
func appendRecord(dst []byte, r *kgo.Record, body int, timeDelta, offsetDelta int64) []byte {
	dst = binary.AppendVarint(dst, int64(body))
	dst = append(dst, 0) // attributes: none are defined
	dst = binary.AppendVarint(dst, timeDelta)
	dst = binary.AppendVarint(dst, offsetDelta)
	dst = appendNullable(dst, r.Key)
	dst = appendNullable(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		dst = append(binary.AppendVarint(dst, int64(len(h.Key))), h.Key...)
		dst = appendNullable(dst, h.Value)
	}
	return dst
}
