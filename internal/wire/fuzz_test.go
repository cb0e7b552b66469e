package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ktxn/ktxn/internal/wire"
)

// message is a request or an answer.
type message interface {
	SetVersion(int16)
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
}

// fuzzMessage reads whatever comes, and what can be read must be written as
// something that reads the same.
func fuzzMessage(f *testing.F, maxVersion int16, fresh func() message) {
	for version := int16(0); version <= maxVersion; version++ {
		msg := fresh()
		msg.SetVersion(version)
		f.Add(version, msg.AppendTo(nil))
	}
	f.Add(int16(0), []byte{})
	f.Add(maxVersion, []byte{0x03, 't', 'x', 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, version int16, src []byte) {
		first := fresh()
		first.SetVersion(version)
		if first.ReadFrom(src) != nil {
			return
		}
		again := fresh()
		again.SetVersion(version)
		require.NoError(t, again.ReadFrom(first.AppendTo(nil)))
		require.Equal(t, first, again)
	})
}

func FuzzInitProducerIDRequest(f *testing.F) {
	fuzzMessage(f, wire.MaxInitProducerIDVersion, func() message { return wire.NewInitProducerIDRequest() })
}

func FuzzInitProducerIDResponse(f *testing.F) {
	fuzzMessage(f, wire.MaxInitProducerIDVersion, func() message { return wire.NewInitProducerIDResponse() })
}

func FuzzTxnHeartbeatRequest(f *testing.F) {
	fuzzMessage(f, 0, func() message { return wire.NewTxnHeartbeatRequest() })
}

func FuzzTxnHeartbeatResponse(f *testing.F) {
	fuzzMessage(f, 0, func() message { return new(wire.TxnHeartbeatResponse) })
}
