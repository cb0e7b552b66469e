package faultnet

import "encoding/binary"

// maxFrame bounds a frame that is believed. Brokers take 100 MB by default; a
// larger size is taken for a stream that is not Kafka's.
const maxFrame = 1 << 30

// minRequest is the smallest request after the size field: key, version,
// correlation id, null client id.
const minRequest = 10

// header is the fixed part of a request frame.
type header struct {
	total   int // bytes of the whole frame, the size field included
	body    int // offset of what follows the client id
	key     int16
	version int16
	corr    int32
}

// size is the value of the frame's size field.
func (h header) size() int { return h.total - 4 }

// parseHeader reads the header of the request frame that b begins with. A need
// above zero says how many bytes of the frame the next attempt needs at least;
// ok is false when b is not the beginning of a request.
func parseHeader(b []byte) (h header, need int, ok bool) {
	if len(b) < 4 {
		return h, 4, true
	}
	size := int32(binary.BigEndian.Uint32(b))
	if size < minRequest || size > maxFrame {
		return h, 0, false
	}
	const fixed = 4 + minRequest
	if len(b) < fixed {
		return h, fixed, true
	}
	idLen := int(int16(binary.BigEndian.Uint16(b[12:])))
	if idLen < -1 || minRequest+idLen > int(size) {
		return h, 0, false
	}
	end := fixed + max(idLen, 0)
	if len(b) < end {
		return h, end, true
	}
	return header{
		total:   4 + int(size),
		body:    end,
		key:     int16(binary.BigEndian.Uint16(b[4:])),
		version: int16(binary.BigEndian.Uint16(b[6:])),
		corr:    int32(binary.BigEndian.Uint32(b[8:])),
	}, 0, true
}

// clientID is the client id bytes of a frame whose header was parsed.
func (h header) clientID(frame []byte) []byte { return frame[4+minRequest : h.body] }

// responseFrame puts size, correlation id and, for flexible headers, an empty
// tag section before an encoded response body.
func responseFrame(corr int32, flexible bool, body []byte) []byte {
	n := 4 + len(body)
	if flexible {
		n++
	}
	frame := make([]byte, 8, 4+n)
	binary.BigEndian.PutUint32(frame, uint32(n))
	binary.BigEndian.PutUint32(frame[4:], uint32(corr))
	if flexible {
		frame = append(frame, 0)
	}
	return append(frame, body...)
}
