package wire_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/ktxn/ktxn/internal/wire"
)

var (
	_ kmsg.Request               = (*wire.InitProducerIDRequest)(nil)
	_ kmsg.TxnCoordinatorRequest = (*wire.InitProducerIDRequest)(nil)
	_ kmsg.Response              = (*wire.InitProducerIDResponse)(nil)
	_ kmsg.ThrottleResponse      = (*wire.InitProducerIDResponse)(nil)
)

// The type has no reason to exist once kmsg has KIP-939's version itself.
func TestKmsgHasNoTwoPhaseCommit(t *testing.T) {
	require.Less(t, kmsg.NewPtrInitProducerIDRequest().MaxVersion(), int16(6),
		"kmsg knows InitProducerId v6 now: compare its layout with the golden bytes below, then use it instead of the v6 part of wire.InitProducerIDRequest")
}

func concat(parts ...[]byte) (all []byte) {
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

func TestInitProducerIDGolden(t *testing.T) {
	id := "tx"
	request := func(version int16, set func(*wire.InitProducerIDRequest)) *wire.InitProducerIDRequest {
		v := wire.NewInitProducerIDRequest()
		v.Version = version
		v.TransactionalID = &id
		v.TransactionTimeoutMillis = 60_000
		v.ProducerID = 0x0102030405060708
		v.ProducerEpoch = 0x090a
		set(v)
		return v
	}
	var tagged kmsg.Tags
	tagged.Set(300, []byte{0xaa, 0xbb})

	head := concat(
		[]byte{0x03, 't', 'x'},         // TransactionalId: compact nullable string, length+1
		[]byte{0x00, 0x00, 0xea, 0x60}, // TransactionTimeoutMs: int32
		[]byte{1, 2, 3, 4, 5, 6, 7, 8}, // ProducerId: int64
		[]byte{0x09, 0x0a},             // ProducerEpoch: int16
	)
	tests := []struct {
		name string
		msg  *wire.InitProducerIDRequest
		want []byte
	}{
		{"v6, 2pc", request(6, func(v *wire.InitProducerIDRequest) { v.Enable2Pc = true }), concat(head,
			[]byte{0x01}, // Enable2Pc: bool
			[]byte{0x00}, // KeepPreparedTxn: bool
			[]byte{0x00}, // no tags
		)},
		{"v6, keep prepared", request(6, func(v *wire.InitProducerIDRequest) { v.KeepPreparedTxn = true }), concat(head,
			[]byte{0x00}, // Enable2Pc
			[]byte{0x01}, // KeepPreparedTxn
			[]byte{0x00}, // no tags
		)},
		{"v7", request(7, func(v *wire.InitProducerIDRequest) {
			v.KeepPreparedTxn = true
			v.TransactionSessionTimeoutMillis = 0x0b0c0d0e
		}), concat(head,
			[]byte{0x00},                   // Enable2Pc
			[]byte{0x01},                   // KeepPreparedTxn
			[]byte{0x0b, 0x0c, 0x0d, 0x0e}, // TransactionSessionTimeoutMs: int32
			[]byte{0x00},                   // no tags
		)},
		{"v7, defaults", func() *wire.InitProducerIDRequest {
			v := wire.NewInitProducerIDRequest()
			v.Version = 7
			return v
		}(), concat(
			[]byte{0x00},                   // TransactionalId: null
			[]byte{0x00, 0x00, 0x00, 0x00}, // TransactionTimeoutMs
			[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, // ProducerId: -1
			[]byte{0xff, 0xff},             // ProducerEpoch: -1
			[]byte{0x00},                   // Enable2Pc
			[]byte{0x00},                   // KeepPreparedTxn
			[]byte{0xff, 0xff, 0xff, 0xff}, // TransactionSessionTimeoutMs: -1, none
			[]byte{0x00},                   // no tags
		)},
		{"v6, tags", request(6, func(v *wire.InitProducerIDRequest) { v.UnknownTags = tagged }), concat(head,
			[]byte{0x00},       // Enable2Pc
			[]byte{0x00},       // KeepPreparedTxn
			[]byte{0x01},       // one tag
			[]byte{0xac, 0x02}, // key 300: uvarint
			[]byte{0x02},       // its length: uvarint
			[]byte{0xaa, 0xbb}, // its value
		)},
	}
	for _, tt := range tests {
		t.Run("request "+tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, tt.msg.AppendTo(nil))
			got := new(wire.InitProducerIDRequest)
			got.SetVersion(tt.msg.Version)
			require.NoError(t, got.ReadFrom(tt.want))
			require.Equal(t, tt.msg, got)
		})
	}

	for version := int16(6); version <= wire.MaxInitProducerIDVersion; version++ {
		t.Run(fmt.Sprintf("response v%d", version), func(t *testing.T) {
			msg := wire.NewInitProducerIDResponse()
			msg.Version = version
			msg.ThrottleMillis = 0x01020304
			msg.ErrorCode = 35
			msg.ProducerID = 0x0102030405060708
			msg.ProducerEpoch = 0x090a
			msg.OngoingTxnProducerID = 0x1112131415161718
			msg.OngoingTxnProducerEpoch = 0x191a
			want := concat(
				[]byte{0x01, 0x02, 0x03, 0x04},                         // ThrottleTimeMs: int32
				[]byte{0x00, 0x23},                                     // ErrorCode: int16
				[]byte{0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08}, // ProducerId: int64
				[]byte{0x09, 0x0a},                                     // ProducerEpoch: int16
				[]byte{0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18}, // OngoingTxnProducerId: int64
				[]byte{0x19, 0x1a},                                     // OngoingTxnProducerEpoch: int16
				[]byte{0x00},                                           // no tags
			)
			require.Equal(t, want, msg.AppendTo(nil))
			got := new(wire.InitProducerIDResponse)
			got.SetVersion(version)
			require.NoError(t, got.ReadFrom(want))
			require.Equal(t, msg, got)
		})
	}
}

// Below v6 the types are kmsg's.
func TestInitProducerIDIsKmsgBelowV6(t *testing.T) {
	for version := range int16(6) {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				req := drawInitRequest(t, version)
				require.Equal(t, req.InitProducerIDRequest.AppendTo(nil), req.AppendTo(nil))
				require.Equal(t, req.InitProducerIDRequest.IsFlexible(), req.IsFlexible())
				resp := drawInitResponse(t, version)
				require.Equal(t, resp.InitProducerIDResponse.AppendTo(nil), resp.AppendTo(nil))
			})
		})
	}
}

func TestInitProducerIDRoundTrip(t *testing.T) {
	for version := int16(0); version <= wire.MaxInitProducerIDVersion; version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				req := drawInitRequest(t, version)
				prefix := []byte("prefix")
				b := req.AppendTo(prefix)
				require.Equal(t, "prefix", string(b[:len(prefix)]), "AppendTo appends")
				// What was there before must not shine through.
				got := drawInitRequest(t, wire.MaxInitProducerIDVersion)
				got.SetVersion(version)
				require.NoError(t, got.ReadFrom(b[len(prefix):]))
				require.Equal(t, req, got)
				got = new(wire.InitProducerIDRequest)
				got.SetVersion(version)
				require.NoError(t, got.UnsafeReadFrom(b[len(prefix):]))
				require.Equal(t, req, got)

				resp := drawInitResponse(t, version)
				b = resp.AppendTo(prefix)
				gotResp := drawInitResponse(t, wire.MaxInitProducerIDVersion)
				gotResp.SetVersion(version)
				require.NoError(t, gotResp.ReadFrom(b[len(prefix):]))
				require.Equal(t, resp, gotResp)
				gotResp = new(wire.InitProducerIDResponse)
				gotResp.SetVersion(version)
				require.NoError(t, gotResp.UnsafeReadFrom(b[len(prefix):]))
				require.Equal(t, resp, gotResp)
			})
		})
	}
}

func TestInitProducerIDLength(t *testing.T) {
	id := "tx"
	for version := int16(6); version <= wire.MaxInitProducerIDVersion; version++ {
		req := wire.NewInitProducerIDRequest()
		req.Version, req.TransactionalID = version, &id
		resp := wire.NewInitProducerIDResponse()
		resp.Version = version
		for _, msg := range []interface {
			AppendTo([]byte) []byte
			ReadFrom([]byte) error
		}{req, resp} {
			b := msg.AppendTo(nil)
			for n := range b {
				require.ErrorIs(t, msg.ReadFrom(b[:n]), kbin.ErrNotEnoughData, "%T v%d cut to %d bytes", msg, version, n)
			}
			require.ErrorIs(t, msg.ReadFrom(append(b, 0)), wire.ErrLeftOver, "%T v%d and a byte", msg, version)
		}
	}
}

func TestInitProducerIDVersions(t *testing.T) {
	tests := []struct {
		name   string
		set    func(*wire.InitProducerIDRequest)
		needed int16
		max    int16
	}{
		{"nothing set", func(*wire.InitProducerIDRequest) {}, 0, 5},
		{"2pc", func(v *wire.InitProducerIDRequest) { v.Enable2Pc = true }, 6, 6},
		{"keep prepared", func(v *wire.InitProducerIDRequest) { v.KeepPreparedTxn = true }, 6, 6},
		{"session timeout", func(v *wire.InitProducerIDRequest) { v.TransactionSessionTimeoutMillis = 10_000 }, 7, 7},
		{"session timeout 0", func(v *wire.InitProducerIDRequest) { v.TransactionSessionTimeoutMillis = 0 }, 7, 7},
		{"all", func(v *wire.InitProducerIDRequest) {
			v.Enable2Pc, v.KeepPreparedTxn, v.TransactionSessionTimeoutMillis = true, true, 1
		}, 7, 7},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			id := "tx"
			v := wire.NewInitProducerIDRequest()
			v.TransactionalID = &id
			tt.set(v)
			require.Equal(t, tt.needed, v.NeededVersion())
			require.Equal(t, tt.max, v.MaxVersion())
			for version := int16(0); version <= wire.MaxInitProducerIDVersion; version++ {
				v.SetVersion(version)
				body := v.AppendTo(nil)
				if version >= tt.needed {
					require.False(t, v.Unreadable(), "v%d", version)
					require.NotEmpty(t, body, "v%d", version)
					continue
				}
				require.True(t, v.Unreadable(), "v%d", version)
				require.Empty(t, body, "v%d", version)
				broker := kmsg.NewPtrInitProducerIDRequest()
				broker.SetVersion(version)
				require.Error(t, broker.ReadFrom(body), "v%d: a broker could parse it", version)
			}
		})
	}
}

func TestInitProducerIDKinds(t *testing.T) {
	req := wire.NewInitProducerIDRequest()
	req.SetVersion(6)
	require.EqualValues(t, 22, req.Key())
	resp, ok := req.ResponseKind().(*wire.InitProducerIDResponse)
	require.True(t, ok)
	require.EqualValues(t, 22, resp.Key())
	require.EqualValues(t, 6, resp.GetVersion())
	require.EqualValues(t, 7, resp.MaxVersion())
	require.True(t, resp.IsFlexible())
	require.EqualValues(t, -1, resp.ProducerID)
	require.EqualValues(t, -1, resp.OngoingTxnProducerID)
	require.EqualValues(t, -1, resp.OngoingTxnProducerEpoch)
	back, ok := resp.RequestKind().(*wire.InitProducerIDRequest)
	require.True(t, ok)
	require.Equal(t, req, back)
}

// requestor answers with what it is told.
type requestor struct {
	got  kmsg.Request
	resp kmsg.Response
	err  error
}

func (r *requestor) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	r.got = req
	return r.resp, r.err
}

func TestInitProducerIDRequestWith(t *testing.T) {
	req := wire.NewInitProducerIDRequest()
	r := &requestor{resp: wire.NewInitProducerIDResponse()}
	resp, err := req.RequestWith(t.Context(), r)
	require.NoError(t, err)
	require.Same(t, req, r.got, "not the embedded request")
	require.Same(t, r.resp, resp)

	boom := errors.New("boom")
	resp, err = req.RequestWith(t.Context(), &requestor{err: boom})
	require.ErrorIs(t, err, boom)
	require.Nil(t, resp)
}
