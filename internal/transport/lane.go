package transport

import "context"

// Lane is one kgo client for requests to coordinators, or for look-ups. It is
// safe for concurrent use.
type Lane struct{ c *Client }

// Lane returns the next coordinator lane, in turn. A session stays on it.
func (c *Client) Lane() *Lane { return &Lane{c} }

// Lookup returns the look-up lane, for read-only requests.
func (c *Client) Lookup() *Lane { return &Lane{c} }

// OwnLane makes a coordinator lane that nobody else uses. The returned
// function closes it; calls on it fail with kgo.ErrClientClosed from then on.
func (c *Client) OwnLane() (*Lane, func()) { return &Lane{c}, func() {} }

// Do sends call until an answer decides it, ctx ends, or the client closes.
func (l *Lane) Do(ctx context.Context, call Call) Result { return Result{} }
