package wire

import (
	"context"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TxnHeartbeatKey is the key of TxnHeartbeat until Kafka assigns one.
const TxnHeartbeatKey = 1095

// TxnHeartbeatRequest (KIP-1309) tells the transaction coordinator that a
// transactional producer is alive. Make one with [NewTxnHeartbeatRequest].
type TxnHeartbeatRequest struct {
	// Version is the version of this message used with a broker.
	Version int16

	// ApiKey is the key that the broker knows this request by.
	//
	// This field has a default of 1095, and 0 is taken for that: a key of 0
	// is a Produce.
	ApiKey int16

	// TransactionalID is the id whose session is alive.
	TransactionalID string

	// ProducerID and ProducerEpoch are the current identity of the producer.
	ProducerID    int64
	ProducerEpoch int16

	// UnknownTags are tags of a sender that knows more than this type.
	UnknownTags kmsg.Tags
}

// NewTxnHeartbeatRequest returns a request with the default key.
func NewTxnHeartbeatRequest() *TxnHeartbeatRequest {
	return &TxnHeartbeatRequest{ApiKey: TxnHeartbeatKey}
}

// Key is ApiKey.
func (v *TxnHeartbeatRequest) Key() int16 { return txnHeartbeatKey(v.ApiKey) }

func txnHeartbeatKey(key int16) int16 {
	if key == 0 {
		return TxnHeartbeatKey
	}
	return key
}

// MaxVersion is 0.
func (*TxnHeartbeatRequest) MaxVersion() int16 { return 0 }

// SetVersion sets the version to write or to read.
func (v *TxnHeartbeatRequest) SetVersion(version int16) { v.Version = version }

// GetVersion returns the version set.
func (v *TxnHeartbeatRequest) GetVersion() int16 { return v.Version }

// IsFlexible is true in all versions.
func (*TxnHeartbeatRequest) IsFlexible() bool { return true }

// IsTxnCoordinatorRequest marks where the request has to go.
func (*TxnHeartbeatRequest) IsTxnCoordinatorRequest() {}

// AppendTo appends the body.
func (v *TxnHeartbeatRequest) AppendTo(dst []byte) []byte {
	dst = kbin.AppendCompactString(dst, v.TransactionalID)
	dst = kbin.AppendInt64(dst, v.ProducerID)
	dst = kbin.AppendInt16(dst, v.ProducerEpoch)
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom parses the body of a request.
func (v *TxnHeartbeatRequest) ReadFrom(src []byte) error {
	b := kbin.Reader{Src: src}
	v.TransactionalID = b.CompactString()
	v.ProducerID = b.Int64()
	v.ProducerEpoch = b.Int16()
	return finish(&b, &v.UnknownTags)
}

// ResponseKind returns an empty [*TxnHeartbeatResponse] of the same version
// and key.
func (v *TxnHeartbeatRequest) ResponseKind() kmsg.Response {
	return &TxnHeartbeatResponse{Version: v.Version, ApiKey: v.Key()}
}

// RequestWith sends v to r.
func (v *TxnHeartbeatRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*TxnHeartbeatResponse, error) {
	kresp, err := r.Request(ctx, v)
	resp, _ := kresp.(*TxnHeartbeatResponse)
	return resp, err
}

// TxnHeartbeatResponse answers a [TxnHeartbeatRequest].
type TxnHeartbeatResponse struct {
	// Version is the version of this message used with a broker.
	Version int16

	// ApiKey is the key of the request; 0 is taken for the default.
	ApiKey int16

	// ThrottleMillis is how long the broker will not answer on this
	// connection, after this answer.
	ThrottleMillis int32

	// ErrorCode is 0 if the coordinator has counted the beat.
	ErrorCode int16

	// ErrorMessage says more about an ErrorCode, if the broker has more to
	// say.
	ErrorMessage *string

	// UnknownTags are tags of a sender that knows more than this type.
	UnknownTags kmsg.Tags
}

// Key is ApiKey.
func (v *TxnHeartbeatResponse) Key() int16 { return txnHeartbeatKey(v.ApiKey) }

// MaxVersion is 0.
func (*TxnHeartbeatResponse) MaxVersion() int16 { return 0 }

// SetVersion sets the version to write or to read.
func (v *TxnHeartbeatResponse) SetVersion(version int16) { v.Version = version }

// GetVersion returns the version set.
func (v *TxnHeartbeatResponse) GetVersion() int16 { return v.Version }

// IsFlexible is true in all versions.
func (*TxnHeartbeatResponse) IsFlexible() bool { return true }

// Throttle returns ThrottleMillis, and that it counts from the answer.
func (v *TxnHeartbeatResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *TxnHeartbeatResponse) SetThrottle(millis int32) { v.ThrottleMillis = millis }

// AppendTo appends the body.
func (v *TxnHeartbeatResponse) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt32(dst, v.ThrottleMillis)
	dst = kbin.AppendInt16(dst, v.ErrorCode)
	dst = kbin.AppendCompactNullableString(dst, v.ErrorMessage)
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom parses the body of an answer.
func (v *TxnHeartbeatResponse) ReadFrom(src []byte) error {
	b := kbin.Reader{Src: src}
	v.ThrottleMillis = b.Int32()
	v.ErrorCode = b.Int16()
	v.ErrorMessage = b.CompactNullableString()
	return finish(&b, &v.UnknownTags)
}

// RequestKind returns an empty [*TxnHeartbeatRequest] of the same version and
// key.
func (v *TxnHeartbeatResponse) RequestKind() kmsg.Request {
	return &TxnHeartbeatRequest{Version: v.Version, ApiKey: v.Key()}
}
