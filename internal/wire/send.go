package wire

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// VersionError is the error of a request whose version would have been too
// low to carry what it says. Nothing was applied. It unwraps to
// kerr.UnsupportedVersion.
type VersionError struct {
	Key     int16
	Version int16 // what broker and client agreed on
	Needed  int16 // the lowest that will do
}

// Error names the request and both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("%s (key %d) needs version %d, but broker and client agree on %d", kmsg.NameForKey(e.Key), e.Key, e.Needed, e.Version)
}

// Unwrap returns kerr.UnsupportedVersion.
func (e *VersionError) Unwrap() error { return kerr.UnsupportedVersion }

// Send sends t to a broker of a kgo client and waits for the answer, as
// Broker.Request does, but returns a [*VersionError] without having sent
// anything if the version turns out too low.
//
// ctx is as for Broker.Request: it bounds the wait. After it has ended,
// Written says whether the request may have been applied.
func Send(ctx context.Context, to kmsg.Requestor, t Tracked) (kmsg.Response, error) {
	b := t.base()
	if b.minVersion() > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		b.refuse = cancel
	}
	resp, err := to.Request(ctx, t)
	if t.TooOld() {
		return nil, &VersionError{Key: t.Key(), Version: t.GetVersion(), Needed: b.minVersion()}
	}
	return resp, err
}
