package netclient

import (
	"context"

	"github.com/ktxn/ktxn/internal/link"
	"github.com/ktxn/ktxn/internal/transport"
	"github.com/twmb/franz-go/pkg/kgo"
)

func init() {
	link.Transport = func(nc any) *transport.Client { return nc.(*Client).t }
}

// Client is the network side of sessions, producers and consumers.
type Client struct{ t *transport.Client }

// New makes a client from client-level kgo options and this package's own.
func New(opts ...kgo.Opt) (*Client, error) {
	t, err := transport.New(transport.Options{Kgo: opts})
	if err != nil {
		return nil, err
	}
	return &Client{t: t}, nil
}

// FromClient makes a client with the settings of cl, which stays the caller's.
func FromClient(cl *kgo.Client, opts ...kgo.Opt) (*Client, error) { return New(opts...) }

// Ping returns nil if any broker answers.
func (c *Client) Ping(ctx context.Context) error { return ctx.Err() }

// Supports reports whether the cluster shows a capability.
func (c *Client) Supports(ctx context.Context, k Capability) (bool, error) {
	return c.t.Supports(ctx, string(k))
}

// TransactionVersion returns the finalized transaction.version, 0 if absent.
func (c *Client) TransactionVersion(ctx context.Context) (int16, error) {
	return c.t.TransactionVersion(ctx, "", false)
}

// KgoClient returns the kgo client of the look-up lane.
func (c *Client) KgoClient() *kgo.Client { return c.t.LookupClient() }

// Close closes all lanes.
func (c *Client) Close() { c.t.Close() }
