package proof_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

// Two producers of a session write to one partition in one transaction: all
// records are there once, those of each producer in their order.
func TestTwoProducersOnePartition(t *testing.T) {
	both(t, 1, func(k *kit) {
		t := k.t
		const each = 50_000
		s := k.ready(k.client())
		require.NoError(t, s.Begin(k.ctx()))
		var work errgroup.Group
		for _, name := range []string{"a", "b"} {
			p := k.producer(s)
			work.Go(func() error {
				for i := range each {
					p.Produce(k.ctx(), record(0, fmt.Sprintf("%s %d", name, i)), nil)
				}
				return p.Flush(k.ctx())
			})
		}
		require.NoError(t, work.Wait())
		require.NoError(t, s.Commit(k.ctx()))

		next := map[string]int{}
		got := k.committed()
		require.Len(t, got, 2*each)
		for _, r := range got {
			var name string
			var i int
			_, err := fmt.Sscanf(string(r.Value), "%s %d", &name, &i)
			if err != nil || i != next[name] {
				require.Fail(t, "a record is lost, doubled or out of order", "%q where %s %d is next", r.Value, name, next[name])
			}
			next[name]++
		}
		require.Equal(t, map[string]int{"a": each, "b": each}, next)
	})
}

// Thirty-two goroutines call whatever comes to their minds. Each Begin, Commit
// and Abort has one winner; the others are told that the state does not allow
// it. What was promised in a committed transaction is there once, and nothing
// else is.
func TestACrowd(t *testing.T) {
	both(t, 3, func(k *kit) {
		t := k.t
		c := &crowd{promised: make(map[int16][]string), calls: make(map[string]int)}
		c.s = k.ready(k.client(netclient.WithHooks(c)))
		c.p = k.producer(c.s)
		ctx, cancel := context.WithTimeout(k.ctx(), 3*time.Second)
		defer cancel()
		var work errgroup.Group
		for i := range 32 {
			work.Go(func() error { return c.member(ctx, k.ctx(), i) })
		}
		require.NoError(t, work.Wait())
		if c.s.State() == txnsession.StateInTransaction {
			require.NoError(t, c.commit(k.ctx()))
		}
		require.NoError(t, c.p.Close(k.ctx()))
		require.Equal(t, txnsession.StateReady, c.s.State())
		require.NoError(t, c.s.Close(k.ctx()))
		c.require(t, k.committed())
	})
}

// crowd is what they do with one session and its producer, and what they were
// told.
type crowd struct {
	s *txnsession.Session
	p *producer.Producer

	given, told atomic.Int64 // records, and promises that ran

	mu       sync.Mutex
	changes  []txnsession.StateChange
	calls    map[string]int // that returned nil
	commits  []span
	promised map[int16][]string // by epoch, which names a transaction
	refused  int
}

// span is the epoch of the session before a call and after it.
type span struct{ from, to int16 }

// OnStateChange is called in the order of the changes.
func (c *crowd) OnStateChange(s txnsession.StateChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, s)
}

// member calls at random until ctx ends; the calls themselves have more time.
func (c *crowd) member(ctx, calls context.Context, id int) error {
	rng := rand.New(rand.NewPCG(1, uint64(id)))
	for i := 0; ctx.Err() == nil; i++ {
		var err error
		var name string
		switch n := rng.IntN(100); {
		case n < 10:
			name, err = "begin", c.s.Begin(calls)
		case n < 16:
			name, err = "commit", c.commit(calls)
		case n < 20:
			name, err = "abort", c.s.Abort(calls)
		case n < 30:
			name = "produce and wait"
			r := record(int32(rng.IntN(3)), fmt.Sprintf("%d-%d", id, i))
			if err = c.p.ProduceSync(calls, r).FirstErr(); err == nil {
				c.promise(r, nil)
			}
		default:
			name = "produce"
			c.given.Add(1)
			c.p.Produce(calls, record(int32(rng.IntN(3)), fmt.Sprintf("%d-%d", id, i)), func(r *kgo.Record, err error) {
				c.told.Add(1)
				c.promise(r, err)
			})
		}
		var typed *txnsession.Error
		switch {
		case err == nil:
			c.mu.Lock()
			c.calls[name]++
			c.mu.Unlock()
		case !errors.As(err, &typed) || !errors.Is(err, txnsession.ErrState) && !errors.Is(err, kgo.ErrAborting):
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (c *crowd) promise(r *kgo.Record, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.refused++
		return
	}
	c.promised[r.ProducerEpoch] = append(c.promised[r.ProducerEpoch], string(r.Value))
}

func (c *crowd) commit(ctx context.Context) error {
	from := c.s.ProducerEpoch()
	err := c.s.Commit(ctx)
	if err == nil {
		c.mu.Lock()
		c.commits = append(c.commits, span{from, c.s.ProducerEpoch()})
		c.mu.Unlock()
	}
	return err
}

// require holds what they were told against what a reader sees.
func (c *crowd) require(t *testing.T, got []*kgo.Record) {
	t.Helper()
	// The changes of state tell how each transaction ended.
	var began, aborts int
	committed, nothing := make(map[int16]bool), make(map[int16]bool)
	var open int16
	for i, ch := range c.changes {
		if i > 0 {
			require.Equal(t, c.changes[i-1].To, ch.From, "change %d", i)
		}
		switch {
		case ch.To == txnsession.StateInTransaction:
			began++
			open = ch.ProducerEpoch
		case ch.To == txnsession.StateReady && ch.ProducerEpoch == open:
			nothing[open] = true // it had no work: the epoch stays
		case ch.To == txnsession.StateReady && ch.From == txnsession.StateCommitting:
			committed[open] = true
		case ch.To == txnsession.StateReady && ch.From == txnsession.StateAborting:
			aborts++
		}
	}
	require.Equal(t, c.given.Load(), c.told.Load(), "every promise ran, once")
	require.Equal(t, c.calls["begin"], began, "one winner for each Begin")
	require.GreaterOrEqual(t, c.calls["abort"], aborts, "and each end was somebody's")
	for _, call := range c.commits {
		found := false
		// A commit that it joined may have moved the epoch already.
		for e := call.from - 1; e <= call.to; e++ {
			found = found || committed[e] || nothing[e]
		}
		require.True(t, found, "a Commit returned nil, at epochs %v", call)
	}

	visible := make(map[int16][]string)
	for _, r := range got {
		visible[r.ProducerEpoch] = append(visible[r.ProducerEpoch], string(r.Value))
	}
	n := 0
	for epoch, values := range c.promised {
		if !committed[epoch] {
			require.Empty(t, visible[epoch], "epoch %d was aborted", epoch)
			continue
		}
		slices.Sort(values)
		slices.Sort(visible[epoch])
		require.Equal(t, values, visible[epoch], "epoch %d was committed", epoch)
		n += len(values)
	}
	require.Len(t, got, n, "nothing that nobody promised")
	t.Logf("%d transactions, %d commits and %d aborts with nil, %d records visible, %d refused or dropped",
		began, len(c.commits), c.calls["abort"], n, c.refused)
	require.Positive(t, n)
	require.Positive(t, aborts)
}
