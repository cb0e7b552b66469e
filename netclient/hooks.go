package netclient

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/transport"
)

// Retry is one attempt that failed and is going to be repeated.
type Retry struct {
	// Key is the request's, as in kmsg.NameForKey.
	Key int16
	// Node is the broker that was asked, -1 if it was any or none.
	Node int32
	// Attempt counts from 1.
	Attempt int
	// Backoff is how long the next attempt waits.
	Backoff time.Duration
	// MaybeSent is false if no byte of this attempt left the process.
	MaybeSent bool
	// Err wraps a *kerr.Error or a network error.
	Err error
}

// HookRetry is called for each attempt that is going to be repeated.
//
// Hooks go in by [WithHooks], or by kgo.WithHooks if they have one of kgo's
// methods too. They must be safe for concurrent use and fast, and must not
// call the client.
type HookRetry interface {
	// OnRetry is passed what failed.
	OnRetry(Retry)
}

// HookCoordinatorChange is called when a transactional id was found at another
// broker than before. See [HookRetry] for how hooks go in.
type HookCoordinatorChange interface {
	// OnCoordinatorChange is passed the id and both brokers.
	OnCoordinatorChange(transactionalID string, from, to int32)
}

// onRetry and onCoordinatorChange pass what the transport reports to one hook.

func onRetry(h kgo.Hook, r transport.Retry) {
	if h, ok := h.(HookRetry); ok {
		h.OnRetry(Retry(r))
	}
}

func onCoordinatorChange(h kgo.Hook, id string, from, to int32) {
	if h, ok := h.(HookCoordinatorChange); ok {
		h.OnCoordinatorChange(id, from, to)
	}
}
