package netclient

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/link"
	"github.com/ktxn/ktxn/internal/transport"
)

func init() {
	link.Transport = func(nc any) *transport.Client {
		c, ok := nc.(*Client)
		if !ok || c == nil {
			return nil
		}
		return c.t
	}
}

// Client is the network side of sessions, producers and share consumers. It is
// safe for concurrent use and made to be shared by thousands of sessions.
type Client struct {
	t *transport.Client
}

// New makes a client from kgo's client-level options and the options of this
// package. It does no I/O: connections are made at first use.
//
// A kgo.ProducerOpt, kgo.ConsumerOpt or kgo.GroupOpt is an error that names
// where the option belongs. So are values that make no sense, and whatever
// kgo.NewClient refuses.
func New(opts ...kgo.Opt) (*Client, error) { return build("netclient.New", nil, opts) }

// FromClient makes a client with the settings of cl: its seeds, dialer and
// TLS, SASL, client id, software name, logger, limits, timeouts and version
// caps. It takes over no hooks, no metrics, no group, no topics and no
// transactional id. The lifetimes are apart: cl stays the caller's, and may be
// closed before or after.
//
// opts are as for New and count after the settings of cl; kgo.SASL and
// kgo.WithHooks add to what is there.
func FromClient(cl *kgo.Client, opts ...kgo.Opt) (*Client, error) {
	if cl == nil {
		return nil, errors.New("netclient.FromClient: the client is nil")
	}
	return build("netclient.FromClient", transport.Settings(cl), opts)
}

func build(who string, base, opts []kgo.Opt) (*Client, error) {
	cfg := config{coordinatorLanes: defaultLanes, produceLanes: defaultLanes, drafts: make(map[string]transport.Proof)}
	var errs []error
	for i, o := range opts {
		if err := cfg.add(who, o); err != nil {
			errs = append(errs, fmt.Errorf("option %d: %w", i+1, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	t, err := transport.New(transport.Options{
		Kgo:                 append(base, cfg.kgo...),
		Hooks:               cfg.hooks,
		CoordinatorLanes:    cfg.coordinatorLanes,
		ProduceLanes:        cfg.produceLanes,
		Drafts:              cfg.drafts,
		OnRetry:             onRetry,
		OnCoordinatorChange: onCoordinatorChange,
	})
	if err != nil {
		if strings.Contains(err.Error(), "hook") {
			err = fmt.Errorf("%w (a hook that has none of kgo's methods goes in by netclient.WithHooks)", err)
		}
		return nil, fmt.Errorf("%s: %w", who, err)
	}
	return &Client{t: t}, nil
}

// Ping returns nil if any broker answers. Each known broker and seed is tried
// once at most; the error is that of the last one, or wraps ctx's.
func (c *Client) Ping(ctx context.Context) error { return c.t.Ping(ctx) }

// Supports reports whether the cluster can do k: every broker has to show it
// by finalized features and request versions, and the version caps have to
// allow it. Every broker is asked, each time. False is no error. An error
// means that nothing is known, because some broker did not answer in a few
// tries or ctx ended, or that k is not one of the constants of this package.
func (c *Client) Supports(ctx context.Context, k Capability) (bool, error) {
	return c.t.Supports(ctx, string(k))
}

// TransactionVersion returns the finalized transaction.version of the cluster,
// 0 when it is absent or the version caps rule out the new rules of KIP-890.
// It retries until a broker answers or ctx ends. The value may be up to 30 s
// old.
func (c *Client) TransactionVersion(ctx context.Context) (int16, error) {
	return c.t.TransactionVersion(ctx, "", false)
}

// KgoClient returns the kgo client of the look-up lane, for kadm or requests
// of your own. It belongs to this client: do not close it.
func (c *Client) KgoClient() *kgo.Client { return c.t.LookupClient() }

// Close closes all connections and joins what runs on them. It takes 2 s at
// most, whatever the brokers do, and is idempotent. Sessions that still use
// the client end as after a lost connection: a request whose answer is lost
// may have been applied. The error of calls from then on wraps
// kgo.ErrClientClosed.
func (c *Client) Close() { c.t.Close() }
