package wire_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/ktxn/ktxn/internal/wire"
)

var (
	_ kmsg.Request               = (*wire.TxnHeartbeatRequest)(nil)
	_ kmsg.TxnCoordinatorRequest = (*wire.TxnHeartbeatRequest)(nil)
	_ kmsg.Response              = (*wire.TxnHeartbeatResponse)(nil)
	_ kmsg.ThrottleResponse      = (*wire.TxnHeartbeatResponse)(nil)
	_ kmsg.SetThrottleResponse   = (*wire.TxnHeartbeatResponse)(nil)
)

// The type has no reason to exist once kmsg has it.
func TestKmsgHasNoTxnHeartbeat(t *testing.T) {
	require.Less(t, int16(kmsg.MaxKey), int16(wire.TxnHeartbeatKey), "the provisional key is inside kmsg's keys")
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		require.NotEqual(t, "TxnHeartbeat", kmsg.NameForKey(key), "kmsg has it as key %d: use that", key)
	}
}

func TestTxnHeartbeatGolden(t *testing.T) {
	req := wire.NewTxnHeartbeatRequest()
	req.TransactionalID = "tx"
	req.ProducerID = 0x0102030405060708
	req.ProducerEpoch = 0x090a
	want := concat(
		[]byte{0x03, 't', 'x'},         // TransactionalId: compact string, length+1
		[]byte{1, 2, 3, 4, 5, 6, 7, 8}, // ProducerId: int64
		[]byte{0x09, 0x0a},             // ProducerEpoch: int16
		[]byte{0x00},                   // no tags
	)
	require.Equal(t, want, req.AppendTo(nil))

	message := "no"
	for _, tt := range []struct {
		message *string
		want    []byte
	}{
		{nil, []byte{0x00}},                // ErrorMessage: null
		{&message, []byte{0x03, 'n', 'o'}}, // ErrorMessage: compact nullable string, length+1
	} {
		resp := &wire.TxnHeartbeatResponse{ThrottleMillis: 0x01020304, ErrorCode: 90, ErrorMessage: tt.message}
		want := concat(
			[]byte{0x01, 0x02, 0x03, 0x04}, // ThrottleTimeMs: int32
			[]byte{0x00, 0x5a},             // ErrorCode: int16
			tt.want,
			[]byte{0x00}, // no tags
		)
		require.Equal(t, want, resp.AppendTo(nil))
	}
}

func drawHeartbeatRequest(t *rapid.T) *wire.TxnHeartbeatRequest {
	return &wire.TxnHeartbeatRequest{
		ApiKey:          rapid.Int16().Draw(t, "key"),
		TransactionalID: drawString(t, "id"),
		ProducerID:      rapid.Int64().Draw(t, "pid"),
		ProducerEpoch:   rapid.Int16().Draw(t, "epoch"),
		UnknownTags:     drawTags(t),
	}
}

func drawHeartbeatResponse(t *rapid.T) *wire.TxnHeartbeatResponse {
	return &wire.TxnHeartbeatResponse{
		ApiKey:         rapid.Int16().Draw(t, "key"),
		ThrottleMillis: rapid.Int32().Draw(t, "throttle"),
		ErrorCode:      rapid.Int16().Draw(t, "code"),
		ErrorMessage:   drawNullable(t, "message"),
		UnknownTags:    drawTags(t),
	}
}

func TestTxnHeartbeatRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawHeartbeatRequest(t)
		got := drawHeartbeatRequest(t) // what was there before must not shine through
		got.ApiKey = req.ApiKey
		require.NoError(t, got.ReadFrom(req.AppendTo(nil)))
		require.Equal(t, req, got)

		resp := drawHeartbeatResponse(t)
		gotResp := drawHeartbeatResponse(t)
		gotResp.ApiKey = resp.ApiKey
		require.NoError(t, gotResp.ReadFrom(resp.AppendTo(nil)))
		require.Equal(t, resp, gotResp)
	})
}

func TestTxnHeartbeatLength(t *testing.T) {
	message := "no"
	for _, msg := range []interface {
		AppendTo([]byte) []byte
		ReadFrom([]byte) error
	}{
		&wire.TxnHeartbeatRequest{TransactionalID: "tx"},
		&wire.TxnHeartbeatResponse{ErrorMessage: &message},
	} {
		b := msg.AppendTo(nil)
		for n := range b {
			require.ErrorIs(t, msg.ReadFrom(b[:n]), kbin.ErrNotEnoughData, "%T cut to %d bytes", msg, n)
		}
		require.ErrorIs(t, msg.ReadFrom(append(b, 0)), wire.ErrLeftOver, "%T and a byte", msg)
	}
	require.Error(t, new(wire.TxnHeartbeatRequest).ReadFrom(make([]byte, 12)), "a null transactional id")
}

func TestTxnHeartbeatKinds(t *testing.T) {
	for _, tt := range []struct{ set, want int16 }{{0, 1095}, {1095, 1095}, {99, 99}} {
		req := &wire.TxnHeartbeatRequest{ApiKey: tt.set}
		req.SetVersion(0)
		require.Equal(t, tt.want, req.Key())
		require.EqualValues(t, 0, req.MaxVersion())
		require.EqualValues(t, 0, req.GetVersion())
		require.True(t, req.IsFlexible())
		require.Equal(t, tt.want, (&wire.TxnHeartbeatResponse{ApiKey: tt.set}).Key())
		resp, ok := req.ResponseKind().(*wire.TxnHeartbeatResponse)
		require.True(t, ok)
		resp.SetVersion(0)
		require.Equal(t, tt.want, resp.Key())
		require.EqualValues(t, 0, resp.MaxVersion())
		require.EqualValues(t, 0, resp.GetVersion())
		require.True(t, resp.IsFlexible())
		resp.SetThrottle(7)
		millis, after := resp.Throttle()
		require.EqualValues(t, 7, millis)
		require.True(t, after)
		require.Equal(t, tt.want, resp.RequestKind().Key())
		require.IsType(t, req, resp.RequestKind())
	}
}

func TestTxnHeartbeatRequestWith(t *testing.T) {
	req := wire.NewTxnHeartbeatRequest()
	r := &requestor{resp: &wire.TxnHeartbeatResponse{}}
	resp, err := req.RequestWith(t.Context(), r)
	require.NoError(t, err)
	require.Same(t, req, r.got)
	require.Same(t, r.resp, resp)

	boom := errors.New("boom")
	resp, err = req.RequestWith(t.Context(), &requestor{err: boom})
	require.ErrorIs(t, err, boom)
	require.Nil(t, resp)
}
