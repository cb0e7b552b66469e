package wire

import (
	"context"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// MaxInitProducerIDVersion is the highest version that the InitProducerId
// types of this package can write and read.
const MaxInitProducerIDVersion = 7

// Versions of InitProducerId that brought fields.
const (
	initTwoPhase       = 6 // KIP-939
	initSessionTimeout = 7 // KIP-1309
)

// InitProducerIDRequest is kmsg's InitProducerId with the fields of the
// versions 6 and 7. Make one with [NewInitProducerIDRequest].
//
// It asks for the lowest version that carries what is set (see MaxVersion),
// and never turns into a version that drops it (see AppendTo).
type InitProducerIDRequest struct {
	kmsg.InitProducerIDRequest

	// Enable2Pc makes the producer's transactions two-phase: the
	// coordinator never times them out.
	Enable2Pc bool // v6+

	// KeepPreparedTxn keeps the transaction that is ongoing instead of
	// aborting it.
	KeepPreparedTxn bool // v6+

	// TransactionSessionTimeoutMillis is the time without a sign of life
	// after which the coordinator ends the producer's session.
	//
	// This field has a default of -1: none.
	TransactionSessionTimeoutMillis int32 // v7+
}

// NewInitProducerIDRequest returns a request with the defaults: no current
// producer id and epoch, no session timeout.
func NewInitProducerIDRequest() *InitProducerIDRequest {
	v := new(InitProducerIDRequest)
	v.Default()
	return v
}

// Default sets the fields whose default is not their zero value.
func (v *InitProducerIDRequest) Default() {
	v.InitProducerIDRequest.Default()
	v.TransactionSessionTimeoutMillis = -1
}

// NeededVersion is the lowest version that carries all that is set, 0 if
// nothing is that kmsg's own type does not have.
func (v *InitProducerIDRequest) NeededVersion() int16 {
	switch {
	case v.TransactionSessionTimeoutMillis >= 0:
		return initSessionTimeout
	case v.Enable2Pc || v.KeepPreparedTxn:
		return initTwoPhase
	}
	return 0
}

// MaxVersion is kmsg's, or the version needed if that is higher. It is not
// the highest that can be encoded: a request without the newer fields has no
// reason to leave in a layout that is not settled.
func (v *InitProducerIDRequest) MaxVersion() int16 {
	return max(v.InitProducerIDRequest.MaxVersion(), v.NeededVersion())
}

// Unreadable reports whether the version set cannot carry what is set, so
// that AppendTo appends no body. After a request it says whether that is what
// went out, hence that nothing was applied: a kgo client sets the version
// right before it encodes, and encodes again only if not a byte of the
// earlier encoding was written.
func (v *InitProducerIDRequest) Unreadable() bool {
	needed := v.NeededVersion()
	return needed > 0 && v.Version < needed
}

// AppendTo appends the body, or nothing if the version set is Unreadable.
//
// Dropping the flags instead would be an Init of another meaning: below v6 it
// aborts the transaction that KeepPreparedTxn keeps, and registers a producer
// whose prepared transactions time out. No version of InitProducerId can be
// parsed from an empty body, since each begins with the transactional id; a
// reader so lenient that it takes the missing bytes for zeros finds a null
// id, which touches no transaction.
func (v *InitProducerIDRequest) AppendTo(dst []byte) []byte {
	if v.Unreadable() {
		return dst
	}
	if v.Version < initTwoPhase {
		return v.InitProducerIDRequest.AppendTo(dst)
	}
	dst = kbin.AppendCompactNullableString(dst, v.TransactionalID)
	dst = kbin.AppendInt32(dst, v.TransactionTimeoutMillis)
	dst = kbin.AppendInt64(dst, v.ProducerID)
	dst = kbin.AppendInt16(dst, v.ProducerEpoch)
	dst = kbin.AppendBool(dst, v.Enable2Pc)
	dst = kbin.AppendBool(dst, v.KeepPreparedTxn)
	if v.Version >= initSessionTimeout {
		dst = kbin.AppendInt32(dst, v.TransactionSessionTimeoutMillis)
	}
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom parses the body of a request of the version set.
func (v *InitProducerIDRequest) ReadFrom(src []byte) error {
	// Whatever the version does not carry has its default.
	*v = InitProducerIDRequest{InitProducerIDRequest: kmsg.InitProducerIDRequest{Version: v.Version}}
	v.Default()
	if v.Version < initTwoPhase {
		return v.InitProducerIDRequest.ReadFrom(src)
	}
	b := kbin.Reader{Src: src}
	v.TransactionalID = b.CompactNullableString()
	v.TransactionTimeoutMillis = b.Int32()
	v.ProducerID = b.Int64()
	v.ProducerEpoch = b.Int16()
	v.Enable2Pc = b.Bool()
	v.KeepPreparedTxn = b.Bool()
	if v.Version >= initSessionTimeout {
		v.TransactionSessionTimeoutMillis = b.Int32()
	}
	return finish(&b, &v.UnknownTags)
}

// UnsafeReadFrom is ReadFrom: the embedded one would read another layout.
func (v *InitProducerIDRequest) UnsafeReadFrom(src []byte) error { return v.ReadFrom(src) }

// ResponseKind returns an empty [*InitProducerIDResponse] of the same version.
func (v *InitProducerIDRequest) ResponseKind() kmsg.Response {
	r := NewInitProducerIDResponse()
	r.Version = v.Version
	return r
}

// RequestWith sends v to r. The embedded one would send only the embedded
// request.
func (v *InitProducerIDRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*InitProducerIDResponse, error) {
	kresp, err := r.Request(ctx, v)
	resp, _ := kresp.(*InitProducerIDResponse)
	return resp, err
}

// InitProducerIDResponse is kmsg's answer to InitProducerId with the fields of
// the versions 6 and 7. Make one with [NewInitProducerIDResponse].
type InitProducerIDResponse struct {
	kmsg.InitProducerIDResponse

	// OngoingTxnProducerID and OngoingTxnProducerEpoch are the identity of
	// the transaction that was kept.
	//
	// These fields have a default of -1: none was ongoing.
	OngoingTxnProducerID    int64 // v6+
	OngoingTxnProducerEpoch int16 // v6+
}

// NewInitProducerIDResponse returns an answer with the defaults.
func NewInitProducerIDResponse() *InitProducerIDResponse {
	v := new(InitProducerIDResponse)
	v.Default()
	return v
}

// Default sets the fields whose default is not their zero value.
func (v *InitProducerIDResponse) Default() {
	v.InitProducerIDResponse.Default()
	v.OngoingTxnProducerID = -1
	v.OngoingTxnProducerEpoch = -1
}

// MaxVersion is [MaxInitProducerIDVersion].
func (*InitProducerIDResponse) MaxVersion() int16 { return MaxInitProducerIDVersion }

// AppendTo appends the body of an answer of the version set.
func (v *InitProducerIDResponse) AppendTo(dst []byte) []byte {
	if v.Version < initTwoPhase {
		return v.InitProducerIDResponse.AppendTo(dst)
	}
	dst = kbin.AppendInt32(dst, v.ThrottleMillis)
	dst = kbin.AppendInt16(dst, v.ErrorCode)
	dst = kbin.AppendInt64(dst, v.ProducerID)
	dst = kbin.AppendInt16(dst, v.ProducerEpoch)
	dst = kbin.AppendInt64(dst, v.OngoingTxnProducerID)
	dst = kbin.AppendInt16(dst, v.OngoingTxnProducerEpoch)
	return appendTags(dst, &v.UnknownTags)
}

// ReadFrom parses the body of an answer of the version set.
func (v *InitProducerIDResponse) ReadFrom(src []byte) error {
	*v = InitProducerIDResponse{InitProducerIDResponse: kmsg.InitProducerIDResponse{Version: v.Version}}
	v.Default()
	if v.Version < initTwoPhase {
		return v.InitProducerIDResponse.ReadFrom(src)
	}
	b := kbin.Reader{Src: src}
	v.ThrottleMillis = b.Int32()
	v.ErrorCode = b.Int16()
	v.ProducerID = b.Int64()
	v.ProducerEpoch = b.Int16()
	v.OngoingTxnProducerID = b.Int64()
	v.OngoingTxnProducerEpoch = b.Int16()
	return finish(&b, &v.UnknownTags)
}

// UnsafeReadFrom is ReadFrom: the embedded one would read another layout.
func (v *InitProducerIDResponse) UnsafeReadFrom(src []byte) error { return v.ReadFrom(src) }

// RequestKind returns an empty [*InitProducerIDRequest] of the same version.
func (v *InitProducerIDResponse) RequestKind() kmsg.Request {
	r := NewInitProducerIDRequest()
	r.Version = v.Version
	return r
}
