package writer_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/internal/writer"
	"github.com/ktxn/ktxn/txnsession"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSession stands for a session: it opens and ends transactions and calls
// the writer's participant as a session does.
type fakeSession struct {
	id      string
	version int16

	mu    sync.Mutex
	state txnsession.State
	err   error
	pid   int64
	epoch int16
	txn   *fakeTxn
	gate  chan struct{} // Own waits for it, if set
	seqs  map[string]int32
	own   func(topic string, partition int32) error
}

func newFakeSession() *fakeSession {
	return &fakeSession{id: "fake", version: 2, state: txnsession.StateReady, pid: 7, epoch: 1, seqs: make(map[string]int32)}
}

// fakeTxn is one transaction of a fakeSession.
type fakeTxn struct {
	s      *fakeSession
	pid    int64
	epoch  int16
	ending chan struct{}
	parts  []txnsession.Participant
	gated  bool
	sealed bool
	ended  bool
	fails  []error
	owned  map[string]int
	wrote  []int64
	done   context.Context
	cancel context.CancelFunc
}

func (s *fakeSession) TransactionalID() string { return s.id }

func (s *fakeSession) State() txnsession.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *fakeSession) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

type passKey struct{}

// passing returns a context that works past the gate of t, as that of a
// PhaseWork Flush does.
func (t *fakeTxn) passing(ctx context.Context) context.Context {
	return context.WithValue(ctx, passKey{}, t)
}

func (s *fakeSession) Enlist(ctx context.Context, p txnsession.Participant) (writer.Txn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.txn
	if s.state != txnsession.StateInTransaction || t == nil || t.sealed || t.gated && ctx.Value(passKey{}) != t {
		return nil, &txnsession.Error{Op: "enlist", State: s.state, Err: txnsession.ErrState}
	}
	if !slices.Contains(t.parts, p) {
		t.parts = append(t.parts, p)
	}
	return t, nil
}

func (s *fakeSession) begin() *fakeTxn {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &fakeTxn{s: s, pid: s.pid, epoch: s.epoch, ending: make(chan struct{}), owned: make(map[string]int)}
	t.done, t.cancel = context.WithCancel(context.Background())
	s.txn, s.state, s.err = t, txnsession.StateInTransaction, nil
	return t
}

func (s *fakeSession) closeGate(t *fakeTxn) []txnsession.Participant {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.gated {
		t.gated = true
		close(t.ending)
	}
	return t.parts
}

// commit ends t as a session does. The error is that of the flush, or why the
// transaction could not be committed.
func (s *fakeSession) commit(ctx context.Context, t *fakeTxn) error {
	for _, p := range s.closeGate(t) {
		if err := p.Flush(ctx); err != nil {
			s.mu.Lock()
			if ctx.Err() == nil && s.state == txnsession.StateInTransaction {
				s.state, s.err = txnsession.StateAbortableError, err
			}
			s.mu.Unlock()
			return err
		}
	}
	s.mu.Lock()
	if s.state != txnsession.StateInTransaction {
		defer s.mu.Unlock()
		return s.err
	}
	t.sealed = true
	s.mu.Unlock()
	s.end(t, txnsession.Committed)
	return nil
}

func (s *fakeSession) abort(ctx context.Context, t *fakeTxn) error {
	parts := s.closeGate(t)
	t.cancel()
	for _, p := range parts {
		if err := p.Discard(ctx); err != nil {
			return err
		}
	}
	s.end(t, txnsession.Aborted)
	return nil
}

func (s *fakeSession) end(t *fakeTxn, v txnsession.Verdict) {
	s.mu.Lock()
	parts := t.parts
	t.ended, t.parts = true, nil
	s.mu.Unlock()
	t.cancel()
	for _, p := range parts {
		p.Settle(v)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.txn, s.state = nil, txnsession.StateReady
	if s.version >= 2 {
		s.epoch++
		clear(s.seqs)
	}
}

// kill is what a fence does: the session is fatal and its end nobody's wish.
func (s *fakeSession) kill(err error) {
	s.mu.Lock()
	s.state, s.err = txnsession.StateFatalError, err
	t := s.txn
	s.mu.Unlock()
	s.closeGate(t)
	t.cancel()
}

func (t *fakeTxn) ProducerID() int64         { return t.pid }
func (t *fakeTxn) ProducerEpoch() int16      { return t.epoch }
func (t *fakeTxn) TransactionVersion() int16 { return t.s.version }
func (t *fakeTxn) Ending() <-chan struct{}   { return t.ending }

func seqKey(topic string, id [16]byte, partition int32) string {
	return fmt.Sprintf("%s/%x/%d", topic, id, partition)
}

func (t *fakeTxn) Own(ctx context.Context, topic string, id [16]byte, partition int32) (int32, error) {
	t.s.mu.Lock()
	gate, own := t.s.gate, t.s.own
	t.s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if own != nil {
		if err := own(topic, partition); err != nil {
			return 0, err
		}
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.sealed || t.ended || t.done.Err() != nil {
		return 0, txnsession.ErrState
	}
	key := seqKey(topic, id, partition)
	t.owned[key]++
	return t.s.seqs[key], nil
}

func (t *fakeTxn) Advance(topic string, id [16]byte, partition, n int32) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if !t.ended {
		key := seqKey(topic, id, partition)
		t.s.seqs[key] = int32((int64(t.s.seqs[key]) + int64(n)) % (1 << 31))
	}
}

func (t *fakeTxn) Wrote(_ string, _ int32, offset int64) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.wrote = append(t.wrote, offset)
}

func (t *fakeTxn) Fail(err error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.fails = append(t.fails, err)
	if !t.ended && t.s.state == txnsession.StateInTransaction {
		t.s.state, t.s.err = txnsession.StateAbortableError, err
	}
}

// failures returns what Fail was called with.
func (t *fakeTxn) failures() []error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return append([]error(nil), t.fails...)
}

// fakeCluster is the metadata.
type fakeCluster struct {
	mu        sync.Mutex
	topics    map[string]*transport.Topic
	refreshes map[string]int
	hints     []string
	hooks     []kgo.Hook
	onRefresh func(topic string)
	maxWrite  int32
}

func newFakeCluster() *fakeCluster {
	return &fakeCluster{topics: make(map[string]*transport.Topic), refreshes: make(map[string]int)}
}

func topicID(b byte) (id [16]byte) { id[0] = b; return id }

// set makes a topic with the given leaders, one for each partition.
func (c *fakeCluster) set(name string, id byte, leaders ...int32) {
	t := &transport.Topic{Name: name, ID: topicID(id), At: time.Now()}
	for _, l := range leaders {
		t.Partitions = append(t.Partitions, transport.Partition{Leader: l})
	}
	c.put(t)
}

func (c *fakeCluster) put(t *transport.Topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topics[t.Name] = t
}

func (c *fakeCluster) remove(name string) {
	c.put(&transport.Topic{Name: name, Err: kerr.UnknownTopicOrPartition})
}

func (c *fakeCluster) CachedTopic(name string) *transport.Topic {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.topics[name]
}

func (c *fakeCluster) Topic(_ context.Context, name string) (*transport.Topic, error) {
	if t := c.CachedTopic(name); t != nil {
		return t, nil
	}
	return &transport.Topic{Name: name, Err: kerr.UnknownTopicOrPartition}, nil
}

func (c *fakeCluster) RefreshTopics(names ...string) <-chan struct{} {
	ch := make(chan struct{})
	time.AfterFunc(time.Millisecond, func() { // the answer takes a while
		c.mu.Lock()
		fn := c.onRefresh
		for _, name := range names {
			c.refreshes[name]++
		}
		c.mu.Unlock()
		if fn != nil {
			fn(names[0])
		}
		close(ch)
	})
	return ch
}

func (c *fakeCluster) refreshed(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refreshes[name]
}

func (c *fakeCluster) LeaderHint(topic string, partition, leader, epoch int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hints = append(c.hints, fmt.Sprintf("%s/%d=%d@%d", topic, partition, leader, epoch))
	if old := c.topics[topic]; old != nil {
		t := *old
		t.Partitions = append([]transport.Partition(nil), old.Partitions...)
		t.Partitions[partition].Leader = leader
		c.topics[topic] = &t
	}
}

func (c *fakeCluster) EachHook(fn func(kgo.Hook)) {
	for _, h := range c.hooks {
		fn(h)
	}
}

func (c *fakeCluster) Logger() kgo.Logger { return kgo.BasicLogger(io.Discard, kgo.LogLevelDebug, nil) }

func (c *fakeCluster) OptValue(opt any) any {
	if _, ok := opt.(func(int32) kgo.Opt); ok && c.maxWrite > 0 {
		return c.maxWrite
	}
	return nil
}

// promised collects what promises say.
type promised struct {
	mu      sync.Mutex
	records []*kgo.Record
	errs    []error
}

func (p *promised) promise(r *kgo.Record, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = append(p.records, r)
	p.errs = append(p.errs, err)
}

func (p *promised) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.errs)
}

func (p *promised) values() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var vs []string
	for _, r := range p.records {
		vs = append(vs, string(r.Value))
	}
	return vs
}

// require asserts that n promises ran and that each error is target (nil: none).
func (p *promised) require(t *testing.T, n int, target error) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Len(t, p.errs, n)
	for i, err := range p.errs {
		if target == nil {
			require.NoError(t, err, "record %d", i)
			continue
		}
		require.ErrorIs(t, err, target, "record %d", i)
	}
}

// pass lets time pass in a bubble, and so all that happens meanwhile.
func pass(d time.Duration) {
	time.Sleep(d) // the bubble's clock
}
