package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// coordinators knows which broker coordinates what.
type coordinators struct {
	txn, group directory
}

func (cs *coordinators) init(c *Client) {
	cs.txn = newDirectory(c, coordinatorTxn)
	cs.group = newDirectory(c, coordinatorGroup)
}

// Coordinator types of FindCoordinator.
const (
	coordinatorGroup int8 = 0
	coordinatorTxn   int8 = 1
)

// maxKnown bounds the cache. An id that fell out costs a share of one look-up.
const maxKnown = 1 << 16

// directory is the cache for one coordinator type, and the queue of look-ups.
//
// A look-up belongs to everybody who waits for it, and runs on no caller's
// context. One request is on its way at a time and the ids that come in
// meanwhile go together into the next, so many sessions that start or lose
// their coordinator at once cost a handful of requests.
type directory struct {
	c    *Client
	kind int8

	mu      sync.Mutex // guards what follows
	known   map[string]placed
	pending map[string]*lookup // queued or asked
	queue   []string
	asking  bool
}

// placed is where a coordinator is, or was last.
type placed struct {
	node int32
	old  bool // forgotten: kept to notice a move
}

// lookup is one id that is being looked up.
type lookup struct {
	done chan struct{}
	node int32
	err  error // read after done
}

// lookupError is a look-up that ended without a coordinator.
type lookupError struct {
	class Class
	sent  bool // the request may have reached a broker
	err   error
}

// Error names the request that failed.
func (e *lookupError) Error() string { return "looking up the coordinator: " + e.err.Error() }

// Unwrap returns the broker's or the network's error.
func (e *lookupError) Unwrap() error { return e.err }

func newDirectory(c *Client, kind int8) directory {
	return directory{c: c, kind: kind, known: make(map[string]placed), pending: make(map[string]*lookup)}
}

// find returns the coordinator of id. It tries until there is one, ctx or the
// client ends, or the broker refuses.
func (d *directory) find(ctx context.Context, id string) (int32, error) {
	d.mu.Lock()
	p, ok := d.known[id]
	d.mu.Unlock()
	if ok && !p.old {
		return p.node, nil
	}
	found, err := d.findAll(ctx, []string{id})
	if err != nil {
		return -1, err
	}
	return found[id], nil
}

// findAll looks up many ids at once. With an error it returns those it found.
func (d *directory) findAll(ctx context.Context, ids []string) (map[string]int32, error) {
	found := make(map[string]int32, len(ids))
	var refused []error
	var last error
	for attempt := 1; ; attempt++ {
		waits := d.enqueue(ids, found)
		var again []string
		sent := false
		for id, l := range waits {
			select {
			case <-l.done:
			case <-ctx.Done():
				return found, ended(ctx, last)
			case <-d.c.Done():
				return found, kgo.ErrClientClosed
			}
			le := (*lookupError)(nil)
			switch {
			case l.err == nil:
				found[id] = l.node
			case errors.As(l.err, &le) && le.class.Retries():
				again, last, sent = append(again, id), l.err, sent || le.sent
			default:
				refused = append(refused, l.err)
			}
		}
		if len(again) == 0 {
			return found, errors.Join(refused...)
		}
		ids = again
		wait := d.c.backoff(attempt)
		d.c.retried(Retry{Key: keyFindCoordinator, Node: -1, Attempt: attempt, Backoff: wait, MaybeSent: sent, Err: last})
		if err := sleep(ctx, wait, d.c.Done()); err != nil {
			if ctx.Err() != nil {
				err = ended(ctx, last)
			}
			return found, err
		}
	}
}

// enqueue adds to found what is known of ids, and queues the rest.
func (d *directory) enqueue(ids []string, found map[string]int32) map[string]*lookup {
	waits := make(map[string]*lookup)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		if p, ok := d.known[id]; ok && !p.old {
			found[id] = p.node
			continue
		}
		l := d.pending[id]
		if l == nil {
			l = &lookup{done: make(chan struct{}), node: -1}
			d.pending[id] = l
			d.queue = append(d.queue, id)
		}
		waits[id] = l
	}
	if len(d.queue) > 0 && !d.asking {
		// On a closed client nobody asks; those who wait see Done.
		d.asking = d.c.spawn(d.ask)
	}
	return waits
}

// take returns the next ids to ask for, none when the asking ends.
func (d *directory) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(d.queue), maxLookups)
	ids := d.queue[:n:n]
	d.queue = d.queue[n:]
	d.asking = n > 0
	return ids
}

// settle ends the look-up of id.
func (d *directory) settle(id string, node int32, err error) {
	d.mu.Lock()
	l := d.pending[id]
	delete(d.pending, id)
	var from int32 = -1
	moved := false
	if err == nil {
		if p, ok := d.known[id]; ok {
			from, moved = p.node, p.node != node
		} else if len(d.known) >= maxKnown {
			clear(d.known)
		}
		d.known[id] = placed{node: node}
	}
	d.mu.Unlock()
	if moved && d.kind == coordinatorTxn {
		d.c.coordinatorMoved(id, from, node)
	}
	if l != nil {
		l.node, l.err = node, err
		close(l.done)
	}
}

// forget has the next find of id ask again, if what is known is still node.
func (d *directory) forget(id string, node int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p, ok := d.known[id]; ok && p.node == node {
		d.known[id] = placed{node: node, old: true}
	}
}

// Coordinators looks up the transaction coordinators of many ids at once, in
// batches. It tries until all are found, ctx ends, or the broker refuses some;
// with an error it returns those it found.
func (c *Client) Coordinators(ctx context.Context, ids []string) (map[string]int32, error) {
	return c.coordinators.txn.findAll(ctx, ids)
}

func (c *Client) coordinatorMoved(id string, from, to int32) {
	c.log.Log(kgo.LogLevelInfo, "transaction coordinator moved", "transactional_id", id, "from", from, "to", to)
	if c.opts.OnCoordinatorChange != nil {
		c.EachHook(func(h kgo.Hook) { c.opts.OnCoordinatorChange(h, id, from, to) })
	}
}

// notPlaced is the error for an id that an answer left out, or gave no node.
func notPlaced(id string) error {
	return &lookupError{ClassRetriable, true, fmt.Errorf("%w: no broker given for %q", kerr.CoordinatorNotAvailable, id)}
}
