package faultnet

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// dialTimeout bounds a dial, also one into a blackhole. It is kgo's default.
const dialTimeout = 10 * time.Second

// DialFunc opens a connection, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// Net is the network. Its methods may be called at any time from any goroutine.
// Make one with New.
type Net struct {
	dial      DialFunc
	tls       *tls.Config
	bodyLimit int
	dataBody  bool

	running sync.WaitGroup // goroutines of connections

	mu         sync.Mutex
	closed     chan struct{}
	isClosed   bool
	conns      map[*conn]struct{} // open for the client
	strays     map[*conn]struct{} // closed for the client, a CutLate on its way
	lastConn   uint64
	down       zone
	stalled    zone
	healed     chan struct{} // closed and replaced when a blackhole ends
	nodes      map[string]int32
	brokers    []kmsg.MetadataResponseBroker
	faults     []*Injection // those that still match, in order
	injections []*Injection // all that were not removed
	requests   map[int16]func() kmsg.Request
	answers    map[int16]func(Request, int16) []byte
	flex       map[[2]int16]bool // whether requests of a key and version are flexible
	log        []*record
	counts     map[int16]int
	seq        uint64
	waiters    int
	changed    chan struct{} // closed and replaced on a change while somebody waits
}

// Option changes a new Net.
type Option func(*Net)

// WithDialer dials with fn instead of a net.Dialer. fn returns plain
// connections: with WithTLS the Net puts TLS over them.
func WithDialer(fn DialFunc) Option {
	return func(n *Net) { n.dial = fn }
}

// WithTLS makes the Net speak TLS to the brokers. An empty ServerName is filled
// in from the address. The client on top must not use TLS itself, or the Net
// sees no frames.
func WithTLS(cfg *tls.Config) Option {
	return func(n *Net) { n.tls = cfg.Clone() }
}

// WithBodyLimit sets the largest request and answer body, in bytes, that the log
// keeps; 0 keeps none. The default is 64 KiB.
func WithBodyLimit(limit int) Option {
	return func(n *Net) { n.bodyLimit = limit }
}

// WithDataBodies keeps the bodies of Produce, Fetch and ShareFetch as well, up
// to the body limit.
func WithDataBodies() Option {
	return func(n *Net) { n.dataBody = true }
}

// New returns a network without faults.
func New(opts ...Option) *Net {
	n := &Net{
		dial:      (&net.Dialer{Timeout: dialTimeout}).DialContext,
		bodyLimit: 64 << 10,
		closed:    make(chan struct{}),
		conns:     make(map[*conn]struct{}),
		strays:    make(map[*conn]struct{}),
		healed:    make(chan struct{}),
		nodes:     make(map[string]int32),
		requests:  make(map[int16]func() kmsg.Request),
		answers:   make(map[int16]func(Request, int16) []byte),
		flex:      make(map[[2]int16]bool),
		counts:    make(map[int16]int),
		changed:   make(chan struct{}),
	}
	for _, opt := range opts {
		opt(n)
	}
	return n
}

// Dial opens a connection to addr through the network; it has the shape of
// kgo.Dialer. The context bounds the dial and, with TLS, the handshake, not the
// connection. A refused dial fails with ECONNREFUSED; one into a blackhole
// waits for the healing, and times out after 10 s.
func (n *Net) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := n.admit(ctx, network, addr); err != nil {
		return nil, err
	}
	raw, err := n.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	inner := raw
	if n.tls != nil {
		if inner, err = n.handshake(ctx, raw, addr); err != nil {
			_ = raw.Close()
			return nil, err
		}
	}
	c := newConn(n, addr, inner, raw)
	if err := n.adopt(c); err != nil {
		_ = raw.Close()
		return nil, dialError(network, err)
	}
	return c, nil
}

// admit decides whether a dial may go out, waiting while addr is a blackhole.
func (n *Net) admit(ctx context.Context, network, addr string) error {
	for {
		n.mu.Lock()
		switch {
		case n.isClosed:
			n.mu.Unlock()
			return dialError(network, net.ErrClosed)
		case n.down.has(addr) || n.refusesDialLocked(addr):
			n.mu.Unlock()
			return dialError(network, errRefused)
		case !n.stalled.has(addr):
			n.mu.Unlock()
			return nil
		}
		healed := n.healed
		n.mu.Unlock()
		select {
		case <-healed:
		case <-n.closed:
		case <-ctx.Done():
			return dialError(network, context.Cause(ctx))
		}
	}
}

func (n *Net) handshake(ctx context.Context, raw net.Conn, addr string) (net.Conn, error) {
	cfg := n.tls
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	c := tls.Client(raw, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// adopt enters a fresh connection, unless its address went down meanwhile.
func (n *Net) adopt(c *conn) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.isClosed:
		return net.ErrClosed
	case n.down.has(c.addr):
		return errRefused
	}
	n.lastConn++
	c.id = n.lastConn
	c.stalled = n.stalled.has(c.addr)
	n.conns[c] = struct{}{}
	return nil
}

// leave takes a connection off the books; a stray is still owed to the broker.
func (n *Net) leave(c *conn, stray bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
	if stray && !n.isClosed {
		n.strays[c] = struct{}{}
	} else {
		delete(n.strays, c)
	}
	n.changedLocked()
}

// Close closes every connection, drops what is held, refuses further dials, and
// waits for the network's goroutines to end. It may be called again.
func (n *Net) Close() {
	n.mu.Lock()
	if !n.isClosed {
		n.isClosed = true
		close(n.closed)
	}
	all := n.connsLocked(nil)
	n.changedLocked()
	n.mu.Unlock()
	for _, c := range all {
		c.sever()
	}
	n.running.Wait()
}

// Conns returns how many connections are open now.
func (n *Net) Conns() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

// ConnsTo returns how many connections to addr are open now.
func (n *Net) ConnsTo(addr string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	open := 0
	for c := range n.conns {
		if c.addr == addr {
			open++
		}
	}
	return open
}

// connsLocked returns the connections, strays included, to the addresses that
// want tells; a nil want wants all.
func (n *Net) connsLocked(want func(addr string) bool) []*conn {
	var found []*conn
	for _, set := range []map[*conn]struct{}{n.conns, n.strays} {
		for c := range set {
			if want == nil || want(c.addr) {
				found = append(found, c)
			}
		}
	}
	return found
}

var errRefused = os.NewSyscallError("connect", syscall.ECONNREFUSED)

func dialError(network string, err error) error {
	return &net.OpError{Op: "dial", Net: network, Err: err}
}
