package wire_test

import (
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/ktxn/ktxn/internal/wire"
)

func drawString(t *rapid.T, label string) string {
	return rapid.OneOf(rapid.String(), rapid.StringN(100, 300, 3000)).Draw(t, label)
}

func drawNullable(t *rapid.T, label string) *string {
	if rapid.Bool().Draw(t, label+" null") {
		return nil
	}
	s := drawString(t, label)
	return &s
}

func drawTags(t *rapid.T) (tags kmsg.Tags) {
	for key, val := range rapid.MapOfN(rapid.Uint32(), rapid.SliceOfN(rapid.Byte(), 0, 200), 0, 3).Draw(t, "tags") {
		tags.Set(key, val)
	}
	return tags
}

// drawInitRequest draws what the version can carry.
func drawInitRequest(t *rapid.T, version int16) *wire.InitProducerIDRequest {
	v := wire.NewInitProducerIDRequest()
	v.Version = version
	v.TransactionalID = drawNullable(t, "id")
	v.TransactionTimeoutMillis = rapid.Int32().Draw(t, "timeout")
	if version >= 2 {
		v.UnknownTags = drawTags(t)
	}
	if version >= 3 {
		v.ProducerID = rapid.Int64().Draw(t, "pid")
		v.ProducerEpoch = rapid.Int16().Draw(t, "epoch")
	}
	if version >= 6 {
		v.Enable2Pc = rapid.Bool().Draw(t, "2pc")
		v.KeepPreparedTxn = rapid.Bool().Draw(t, "keep")
	}
	if version >= 7 {
		v.TransactionSessionTimeoutMillis = rapid.Int32().Draw(t, "session timeout")
	}
	return v
}

func drawInitResponse(t *rapid.T, version int16) *wire.InitProducerIDResponse {
	v := wire.NewInitProducerIDResponse()
	v.Version = version
	v.ThrottleMillis = rapid.Int32().Draw(t, "throttle")
	v.ErrorCode = rapid.Int16().Draw(t, "code")
	v.ProducerID = rapid.Int64().Draw(t, "pid")
	v.ProducerEpoch = rapid.Int16().Draw(t, "epoch")
	if version >= 2 {
		v.UnknownTags = drawTags(t)
	}
	if version >= 6 {
		v.OngoingTxnProducerID = rapid.Int64().Draw(t, "ongoing pid")
		v.OngoingTxnProducerEpoch = rapid.Int16().Draw(t, "ongoing epoch")
	}
	return v
}
