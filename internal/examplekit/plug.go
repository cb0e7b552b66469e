package examplekit

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Plug carries the connections of some clients. Pulling it is how a part of a
// process dies like a whole one: nothing is sent any more, no abort and no
// goodbye, and nobody can be told.
type Plug struct {
	mu     sync.Mutex // guards what follows
	conns  map[net.Conn]bool
	pulled bool
}

var errPulled = errors.New("the plug is pulled")

// Dialer makes a client's connections go through the plug.
func (p *Plug) Dialer() kgo.Opt { return kgo.Dialer(p.dial) }

// Pull cuts every connection; no new one is made.
func (p *Plug) Pull() {
	p.mu.Lock()
	p.pulled = true
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
}

func (p *Plug) dial(ctx context.Context, network, host string) (net.Conn, error) {
	var d net.Dialer
	if p.isPulled() {
		return nil, errPulled
	}
	c, err := d.DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pulled {
		_ = c.Close()
		return nil, errPulled
	}
	if p.conns == nil {
		p.conns = make(map[net.Conn]bool)
	}
	plugged := &pluggedConn{Conn: c, plug: p}
	p.conns[plugged] = true
	return plugged, nil
}

func (p *Plug) isPulled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pulled
}

type pluggedConn struct {
	net.Conn
	plug *Plug
}

// Close closes the connection and forgets it.
func (c *pluggedConn) Close() error {
	c.plug.mu.Lock()
	delete(c.plug.conns, c)
	c.plug.mu.Unlock()
	return c.Conn.Close()
}
