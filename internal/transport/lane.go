package transport

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Lane is one kgo client for requests to coordinators, or for look-ups: one
// connection to each broker it talks to. It is safe for concurrent use.
type Lane struct {
	c     *Client
	conns *conns
}

func (c *Client) newLane() *Lane { return &Lane{c: c, conns: newConns(c, c.newKgo)} }

// Lane returns the next coordinator lane, in turn. A session stays on it, so
// that its requests keep their order.
func (c *Client) Lane() *Lane {
	return c.lanes[(c.nextLane.Add(1)-1)%uint32(len(c.lanes))]
}

// Lookup returns the look-up lane, for read-only requests.
func (c *Client) Lookup() *Lane { return c.lookup }

// OwnLane makes a coordinator lane that nobody else uses. The returned
// function closes it and may be called more than once; calls on the lane end
// with kgo.ErrClientClosed from then on. Close of the client closes it too.
func (c *Client) OwnLane() (*Lane, func()) {
	l := c.newLane()
	return l, l.conns.close
}

// Do sends call until an answer decides it, ctx ends, or the client or the
// lane is closed. ctx is the budget: retries are not counted. It bounds the
// wait only, and never takes back what was sent: see [Result].
func (l *Lane) Do(ctx context.Context, call Call) Result {
	r := run{l: l, call: call, res: Result{Version: -1, Node: -1}}
	for r.attempt(ctx) {
	}
	return r.res
}

// resolve returns the node that t means now, -1 for any.
func (l *Lane) resolve(ctx context.Context, t Target) (int32, error) {
	switch t.kind {
	case targetTxn:
		return l.c.coordinators.txn.find(ctx, t.id)
	case targetGroup:
		return l.c.coordinators.group.find(ctx, t.id)
	case targetNode:
		return t.node, nil
	}
	return -1, nil
}

// forget drops what is cached about t if that is still node.
func (l *Lane) forget(t Target, node int32) {
	switch t.kind {
	case targetTxn:
		l.c.coordinators.txn.forget(t.id, node)
	case targetGroup:
		l.c.coordinators.group.forget(t.id, node)
	case targetAny:
		l.conns.next()
	}
}

// Forget drops the cached coordinator of a target if it is still node: the
// next call looks it up again. Other targets have nothing cached.
func (c *Client) Forget(t Target, node int32) { c.lookup.forget(t, node) }

func (c *Client) retried(r Retry) {
	if c.log.Level() >= kgo.LogLevelDebug {
		c.log.Log(kgo.LogLevelDebug, "retrying request",
			"request", KeyName(r.Key), "broker", r.Node, "attempt", r.Attempt,
			"backoff", r.Backoff, "maybe_sent", r.MaybeSent, "err", r.Err)
	}
	if c.opts.OnRetry != nil {
		c.EachHook(func(h kgo.Hook) { c.opts.OnRetry(h, r) })
	}
}
