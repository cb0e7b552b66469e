package writer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/link"
	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/txnsession"
)

// cluster is what the writer needs of a *transport.Client.
type cluster interface {
	CachedTopic(name string) *transport.Topic
	Topic(ctx context.Context, name string) (*transport.Topic, error)
	RefreshTopics(names ...string) <-chan struct{}
	LeaderHint(topic string, partition, leader, epoch int32)
	EachHook(fn func(kgo.Hook))
	Logger() kgo.Logger
	OptValue(opt any) any
}

// lane is a *transport.ProduceLane.
type lane interface {
	Produce(node int32, req kmsg.Request, written func(), done func(resp kmsg.Response, maybeSent bool, err error))
}

// Writer sends Produce for one session. Get it with For. It is safe for
// concurrent use, and needs no closing: when nothing is buffered or in flight it
// has no goroutine and no timer.
type Writer struct {
	session         session
	cluster         cluster
	lane            lane
	transactionalID string
	hooks           hooks
	log             kgo.Logger
	backoffFn       func(int) time.Duration
	maxBatch        int // what fits into a request of the user's client
	requestCap      int
	clock           clock
	turn            atomic.Uint64 // promises run so far, the present one included

	enlisting sync.Mutex // held while the session is asked; before mu

	mu         sync.Mutex
	opts       Options
	configured bool
	run        *run // that takes records; nil: none has been joined
	topics     map[string]*topic
	sinks      map[int32]*sink
	outbox     []*request // to be handed to the lane when mu is let go of

	space    space
	blocked  int   // Produce calls that wait for space
	open     int64 // records handed to Produce whose promise has not returned
	flushing int   // Flush calls
	urgent   int   // calls that a linger must not hold up
	flushers []*flusher

	outcomes   []*outcome
	delivering bool            // deliver runs
	relieved   chan struct{}   // closed when there are no longer too many outcomes
	synced     []chan struct{} // deliver's own: calls to let go after this outcome

	jobs    []*batch
	workers int
	owners  int // goroutines that call Own
	toOwn   []*partition

	watching  bool // the timer that looks for what took too long is set
	lingering bool // the one for batches that linger is
}

// For returns the writer of a session, the same for all who ask. The first to
// give options configures it; those who give others later get a *ConflictError.
// Nil options take what there is.
func For(s *txnsession.Session, o *Options) (*Writer, error) {
	w := link.Attach(s, func() any {
		t := link.Transport(s.Client())
		return newWriter(realSession{s}, t, t.ProduceLane())
	}).(*Writer)
	return w, w.configure(o)
}

func newWriter(s session, c cluster, l lane) *Writer {
	w := &Writer{
		session: s, cluster: c, lane: l, log: c.Logger(), transactionalID: s.TransactionalID(),
		opts: DefaultOptions(), topics: make(map[string]*topic), sinks: make(map[int32]*sink),
	}
	c.EachHook(w.hooks.add)
	w.backoffFn, _ = c.OptValue(kgo.RetryBackoffFn).(func(int) time.Duration)
	limit := 100 << 20 // Kafka's default of socket.request.max.bytes, and kgo's
	if n, ok := c.OptValue(kgo.BrokerMaxWriteBytes).(int32); ok {
		limit = int(n)
	}
	w.maxBatch = limit - len(w.transactionalID) - 512 // headers, client id and lengths
	w.requestCap = min(requestCap, w.maxBatch)
	return w
}

func (w *Writer) configure(o *Options) error {
	if o == nil {
		return nil
	}
	w.mu.Lock()
	defer w.unlock()
	if w.configured {
		if name := w.opts.differs(o); name != "" {
			return &ConflictError{Option: name}
		}
		return nil
	}
	w.opts, w.configured = *o, true
	for _, t := range w.topics {
		t.maxBytes = w.batchLimit(t.name)
	}
	return nil
}

// unlock lets go of mu and hands the lane what is to be sent. Requests to one
// broker keep their order, since the next is only made when this one is encoded.
func (w *Writer) unlock() {
	out := w.outbox
	w.outbox = nil
	w.mu.Unlock()
	for _, q := range out {
		s := q.sink
		w.lane.Produce(s.node, q, func() { s.encoded(q) }, func(resp kmsg.Response, maybeSent bool, err error) {
			s.answered(q, resp, maybeSent, err)
		})
	}
}

// flush sends all that is buffered, and waits as f says.
func (w *Writer) flush(ctx context.Context, f *flusher) error {
	w.mu.Lock()
	w.flushing++
	w.pumpAll()
	w.unlock()
	defer func() {
		w.mu.Lock()
		w.flushing--
		w.unlock()
	}()
	return w.awaitPromises(ctx, f)
}

// backoff is how long to wait after so many failures in a row.
func (w *Writer) backoff(fails int) time.Duration {
	d := 250 * time.Millisecond
	if w.backoffFn != nil {
		d = w.backoffFn(fails)
	}
	return min(d, time.Second)
}
