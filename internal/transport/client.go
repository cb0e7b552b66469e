package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// closeBound is how long Close waits for what runs on the lanes.
const closeBound = 2 * time.Second

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
	// OnRetry and OnCoordinatorChange, if set, are called for each hook at
	// each retry and each move of a transaction coordinator. They must not
	// block.
	OnRetry             func(kgo.Hook, Retry)
	OnCoordinatorChange func(h kgo.Hook, id string, from, to int32)
}

// Retry is one failed attempt that is going to be repeated.
type Retry struct {
	Key       int16
	Node      int32 // -1: none resolved yet
	Attempt   int   // 1 is the first
	Backoff   time.Duration
	MaybeSent bool // this attempt may have reached the broker
	Err       error
}

// Client owns the lanes. It is safe for concurrent use.
type Client struct {
	opts   Options
	log    kgo.Logger
	drafts drafts
	userV  *kversion.Versions // the user's version caps; nil: none
	laneV  *kversion.Versions // what lanes may send; nil: anything
	minV   *kversion.Versions // the user's lower bound; nil: none
	hooks  []kgo.Hook

	backoff      func(streak int) time.Duration
	busyBackoff  time.Duration // the most between tries while a transaction ends
	look         *kgo.Client   // of the look-up lane
	lookup       *Lane
	lanes        []*Lane
	produceLanes []*ProduceLane
	nextLane     atomic.Uint32
	nextProduce  atomic.Uint32

	coordinators coordinators
	versions     versionCache
	topics       topicCache

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	unbind func() bool // from the user's kgo.WithContext

	mu     sync.Mutex // guards what follows
	closed bool
	conns  map[*conns]struct{}
	wg     sync.WaitGroup // Add only under mu, while not closed
	ended  chan struct{}  // closed when Close has ended
}

// New makes a client. It does no I/O: connections are made at first use.
func New(o Options) (*Client, error) {
	if o.CoordinatorLanes < 1 {
		return nil, fmt.Errorf("%d coordinator lanes: at least 1 is needed", o.CoordinatorLanes)
	}
	if o.ProduceLanes < 1 {
		return nil, fmt.Errorf("%d produce lanes: at least 1 is needed", o.ProduceLanes)
	}
	drafts, err := newDrafts(o.Drafts)
	if err != nil {
		return nil, err
	}
	c := &Client{
		opts:   o,
		drafts: drafts,
		conns:  make(map[*conns]struct{}),
		ended:  make(chan struct{}),
	}
	c.versions.init(c)
	c.coordinators.init(c)
	c.topics.c = c
	c.ctx, c.cancel = context.WithCancel(context.Background())

	look, err := kgo.NewClient(append(slices.Clip(o.Kgo),
		kgo.DisableClientMetrics(), kgo.WithHooks(watcher{c}))...)
	if err != nil {
		c.cancel()
		return nil, err
	}
	c.look = look
	c.readSettings()
	c.lookup = &Lane{c: c, conns: newConns(c, nil)}
	c.lookup.conns.cl = look // made already: Close must end it, used or not
	for range o.CoordinatorLanes {
		c.lanes = append(c.lanes, c.newLane())
	}
	for range o.ProduceLanes {
		c.produceLanes = append(c.produceLanes, &ProduceLane{c: c, conns: newConns(c, c.newKgo)})
	}
	if ctx := value[context.Context](look, kgo.WithContext, nil); ctx != nil {
		c.unbind = context.AfterFunc(ctx, c.Close)
	}
	return c, nil
}

func (c *Client) readSettings() {
	look := c.look
	c.log = value[kgo.Logger](look, kgo.WithLogger, quietLogger{})
	c.userV = capsOf(look)
	unlimited := value(look, kgo.MaxVersions, kversion.Stable()) == nil
	c.laneV = laneCaps(c.userV, unlimited, c.drafts.keys)
	c.minV = value[*kversion.Versions](look, kgo.MinVersions, nil)
	c.backoff = backoffOf(look)
	c.topics.maxAge = value(look, kgo.MetadataMaxAge, 5*time.Minute)
	c.topics.auto = value(look, kgo.AllowAutoTopicCreation, false)
	c.busyBackoff = value(look, kgo.ConcurrentTransactionsBackoff, 20*time.Millisecond)
	for _, h := range value[[]kgo.Hook](look, kgo.WithHooks, nil) {
		if _, own := h.(watcher); !own {
			c.hooks = append(c.hooks, h)
		}
	}
	c.hooks = append(c.hooks, c.opts.Hooks...)
}

// newKgo makes the kgo client of a lane.
func (c *Client) newKgo() (*kgo.Client, error) {
	opts := append(Settings(c.look),
		kgo.MaxVersions(c.laneV),
		kgo.WithHooks(newForwarder(c, c.hooks)),
		kgo.DisableClientMetrics(),
		kgo.RequiredAcks(kgo.AllISRAcks())) // kgo writes this into every *kmsg.ProduceRequest
	if ctx := value[context.Context](c.look, kgo.WithContext, nil); ctx != nil {
		opts = append(opts, kgo.WithContext(ctx))
	}
	return kgo.NewClient(opts...)
}

// Close ends all lanes and waits for what runs on them, 2 s at most. It is
// idempotent; a second call waits for the first.
func (c *Client) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.ended
		return
	}
	c.closed = true
	all := make([]*conns, 0, len(c.conns))
	for cs := range c.conns {
		all = append(all, cs)
	}
	c.mu.Unlock()
	defer close(c.ended)

	c.cancel()
	c.topics.stop()
	if c.unbind != nil {
		c.unbind()
	}
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		var closing sync.WaitGroup
		for _, cs := range all {
			if cs != c.lookup.conns {
				closing.Go(cs.close)
			}
		}
		closing.Wait()
		c.lookup.conns.close() // last: it closes the user's SASL mechanisms
		c.wg.Wait()
	}()
	bound := time.NewTimer(closeBound)
	defer bound.Stop()
	select {
	case <-joined:
	case <-bound.C:
		c.log.Log(kgo.LogLevelWarn, "closing took too long, the rest ends in the background", "bound", closeBound)
	}
}

// Done is closed when Close begins.
func (c *Client) Done() <-chan struct{} { return c.ctx.Done() }

// Logger is the user's logger, never nil.
func (c *Client) Logger() kgo.Logger { return c.log }

// EachHook calls fn for each hook of the user, those of kgo.WithHooks first.
func (c *Client) EachHook(fn func(kgo.Hook)) {
	for _, h := range c.hooks {
		fn(h)
	}
}

// LookupClient is the kgo client of the look-up lane. It belongs to the lane.
func (c *Client) LookupClient() *kgo.Client { return c.look }

// OptValue returns the value of a client-level kgo option, as kgo's OptValue.
func (c *Client) OptValue(opt any) any { return c.LookupClient().OptValue(opt) }

// spawn runs fn in a goroutine that Close waits for. It reports false, and
// does not run fn, once Close has begun.
func (c *Client) spawn(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(fn)
	return true
}

// sleep waits for d. It returns the cause of ctx, or kgo.ErrClientClosed if
// stop is closed first.
func sleep(ctx context.Context, d time.Duration, stop <-chan struct{}) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-stop:
		return kgo.ErrClientClosed
	}
}

// endedError is the error of a call that a context ended: both why it ended,
// and what had kept it from succeeding until then.
type endedError struct {
	ctx, cause error
	last       error // may be nil
}

func ended(ctx context.Context, last error) error {
	err := &endedError{ctx: ctx.Err(), cause: context.Cause(ctx)}
	if last != nil && !errors.Is(last, err.ctx) {
		err.last = last
	}
	return err
}

// Error shows the cause first.
func (e *endedError) Error() string {
	if e.last == nil {
		return e.cause.Error()
	}
	return fmt.Sprintf("%v; the last try: %v", e.cause, e.last)
}

// Unwrap returns the context's error, its cause, and the last error, if any.
func (e *endedError) Unwrap() []error {
	errs := []error{e.ctx, e.cause}
	if e.last != nil {
		errs = append(errs, e.last)
	}
	return errs
}
