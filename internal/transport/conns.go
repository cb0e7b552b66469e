package transport

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// conns is one kgo client, made at its first use: a client that nobody uses
// must not dial, and most users need only some of the lanes.
type conns struct {
	c     *Client
	build func() (*kgo.Client, error)
	done  chan struct{} // closed by close

	closing sync.Once

	start      uint32        // where AnyNode begins
	turn       atomic.Uint32 // how often it moved on
	refreshing atomic.Bool

	mu     sync.Mutex // guards what follows
	cl     *kgo.Client
	closed bool
}

func newConns(c *Client, build func() (*kgo.Client, error)) *conns {
	// Many clients should not all ask the same broker.
	cs := &conns{c: c, build: build, done: make(chan struct{}), start: rand.Uint32()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		cs.closing.Do(func() {
			cs.closed = true
			close(cs.done)
		})
		return cs
	}
	c.conns[cs] = struct{}{}
	return cs
}

// client returns the kgo client, or kgo.ErrClientClosed.
func (cs *conns) client() (*kgo.Client, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.cl == nil {
		if cs.closed {
			return nil, kgo.ErrClientClosed
		}
		cl, err := cs.build()
		if err != nil {
			return nil, err
		}
		cs.cl = cl
	}
	return cs.cl, nil
}

func (cs *conns) isClosed() bool {
	select {
	case <-cs.done:
		return true
	default:
		return false
	}
}

// close ends the kgo client and everything in flight on it. A second call
// waits for the first.
func (cs *conns) close() {
	cs.closing.Do(func() {
		cs.mu.Lock()
		cs.closed = true
		cl := cs.cl
		cs.mu.Unlock()
		close(cs.done)
		if cl != nil {
			cl.Close()
		}
		cs.c.mu.Lock()
		defer cs.c.mu.Unlock()
		delete(cs.c.conns, cs)
	})
}

// broker returns the handle of a node, of any that answers if it is negative.
func (cs *conns) broker(cl *kgo.Client, node int32) *kgo.Broker {
	if node >= 0 {
		return cl.Broker(int(node))
	}
	all, turn := cl.DiscoveredBrokers(), cs.turn.Load()
	n := uint32(len(all))
	if turn%(n+1) < n {
		return all[(cs.start+turn)%n]
	}
	// All that was discovered failed in turn: it may be gone.
	seeds := cl.SeedBrokers()
	return seeds[(cs.start+turn/(n+1))%uint32(len(seeds))]
}

// next has the next AnyNode ask another broker.
func (cs *conns) next() { cs.turn.Add(1) }

// refreshBound is how long a lane looks for a broker that tells it where the
// brokers are.
const refreshBound = 10 * time.Second

// refreshBrokers has the kgo client learn the brokers' addresses again, in the
// background and once at a time. kgo does that every few minutes only, and a
// node that came back at another address would be out of reach until then.
func (cs *conns) refreshBrokers() {
	if !cs.refreshing.CompareAndSwap(false, true) {
		return
	}
	running := cs.c.spawn(func() {
		defer cs.refreshing.Store(false)
		cl, err := cs.client()
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(cs.c.ctx, refreshBound)
		defer cancel()
		if err := cl.Ping(ctx); err != nil {
			cs.c.log.Log(kgo.LogLevelDebug, "no broker answered when asked for the brokers' addresses", "err", err)
		}
	})
	if !running {
		cs.refreshing.Store(false)
	}
}
