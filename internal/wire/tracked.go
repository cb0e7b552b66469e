package wire

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Tracked is a request that knows whether it has been written. [Track] makes
// one. It is for one attempt on one connection, by Broker.Request of a kgo
// client: a second attempt needs a Tracked of its own, and Client.Request
// tells apart types that Tracked hides.
//
// Written and TooOld may be called at any time by any goroutine; the rest
// belongs to whoever builds the request, and from then on to the client.
type Tracked interface {
	kmsg.Request

	// CapVersion keeps MaxVersion from exceeding version. It returns its
	// receiver.
	CapVersion(version int16) Tracked

	// RequireVersion sets the lowest version that may be written; a request
	// of this package with a NeededVersion above that has its own. If the
	// client chooses a lower one, AppendTo appends nothing, so that no
	// broker can apply it (see the package comment). It returns its receiver.
	RequireVersion(version int16) Tracked

	// OnWritten has fn called once, when Written becomes true. The next
	// request for the same broker may be issued from then on and will follow
	// this one. fn runs on the goroutine that writes for that broker: it
	// must not wait for anything. A request that fails before that, or that
	// is TooOld, never calls it. It returns its receiver.
	OnWritten(fn func()) Tracked

	// Written reports whether a body that a broker can apply has been handed
	// over for writing, now or in an earlier try of the client. As long as
	// it is false, and once the request has returned, not one byte of it has
	// left the process. If it is true the broker may have applied it,
	// whatever error the request returned.
	Written() bool

	// TooOld reports that the version chosen is below the required one:
	// the request was not applied. It is false if Written is true.
	TooOld() bool

	// Unwrap returns the request that Track was given.
	Unwrap() kmsg.Request

	base() *tracked
}

// Track wraps req, which must not be nil. To the client the result is req in
// everything but its Go type: same key, versions, bytes, answers, connection
// and timeouts.
//
// Three requests depend on their Go type in more than that. Produce keeps its
// own Acks and TimeoutMillis, which a kgo client would replace by its
// settings; with Acks 0, which a broker does not answer, it must not be
// tracked. SyncGroup has the default timeout instead of the one of the last
// JoinGroup.
func Track(req kmsg.Request) Tracked {
	t := &tracked{req: req}
	if n, ok := req.(interface{ NeededVersion() int16 }); ok {
		t.needed = n.NeededVersion
	}
	t.self = t
	if timeout := timeoutOf(req); timeout != nil {
		t.self = &timedTracked{t, timeout}
	}
	return t.self
}

// timeoutOf returns how long a broker may take by order of req, on top of the
// client's own timeout, or nil. A kgo client reads it from the TimeoutRequest
// interface, and from the Go types of requests that long-poll. It sends a
// TimeoutRequest over a connection for slow requests; the ones told apart here
// are those that have one of their own by their key.
func timeoutOf(req kmsg.Request) func() int32 {
	switch req := req.(type) {
	case kmsg.TimeoutRequest:
		return req.Timeout
	case *kmsg.FetchRequest:
		return func() int32 { return req.MaxWaitMillis }
	case *kmsg.ShareFetchRequest:
		return func() int32 { return req.MaxWaitMillis }
	case *kmsg.JoinGroupRequest:
		return func() int32 { return req.RebalanceTimeoutMillis }
	}
	return nil
}

// timedTracked is for requests with a timeout. A type of its own, because a
// request that has none but is a TimeoutRequest would wait behind those that
// have.
type timedTracked struct {
	*tracked
	timeout func() int32
}

// Timeout makes it a kmsg.TimeoutRequest.
func (t *timedTracked) Timeout() int32 { return t.timeout() }

type tracked struct {
	req  kmsg.Request
	self Tracked // what Track returned

	capAt    int16 // counts if capped
	capped   bool
	required int16
	needed   func() int16 // nil if req has no say
	refuse   func()       // nil unless Send

	onWritten func()
	written   atomic.Bool
	tooOld    atomic.Bool
}

func (t *tracked) base() *tracked { return t }

func (t *tracked) Unwrap() kmsg.Request        { return t.req }
func (t *tracked) Key() int16                  { return t.req.Key() }
func (t *tracked) GetVersion() int16           { return t.req.GetVersion() }
func (t *tracked) IsFlexible() bool            { return t.req.IsFlexible() }
func (t *tracked) ResponseKind() kmsg.Response { return t.req.ResponseKind() }
func (t *tracked) ReadFrom(src []byte) error   { return t.req.ReadFrom(src) }
func (t *tracked) Written() bool               { return t.written.Load() }
func (t *tracked) TooOld() bool                { return t.tooOld.Load() && !t.written.Load() }

func (t *tracked) CapVersion(version int16) Tracked {
	t.capAt, t.capped = version, true
	return t.self
}

func (t *tracked) RequireVersion(version int16) Tracked {
	t.required = version
	return t.self
}

func (t *tracked) OnWritten(fn func()) Tracked {
	t.onWritten = fn
	return t.self
}

func (t *tracked) MaxVersion() int16 {
	v := t.req.MaxVersion()
	if t.capped {
		v = min(v, t.capAt)
	}
	return v
}

// minVersion is the lowest version that may be written, 0 if any may.
func (t *tracked) minVersion() int16 {
	v := t.required
	if t.needed != nil {
		v = max(v, t.needed())
	}
	return v
}

func (t *tracked) SetVersion(version int16) {
	t.req.SetVersion(version)
	if t.judge() && t.refuse != nil {
		t.refuse()
	}
}

// judge notes whether the version set is too low.
func (t *tracked) judge() (tooOld bool) {
	needed := t.minVersion()
	tooOld = needed > 0 && t.req.GetVersion() < needed
	t.tooOld.Store(tooOld)
	return tooOld
}

func (t *tracked) AppendTo(dst []byte) []byte {
	if t.judge() {
		return dst
	}
	dst = t.req.AppendTo(dst)
	if t.written.CompareAndSwap(false, true) && t.onWritten != nil {
		t.onWritten()
	}
	return dst
}
