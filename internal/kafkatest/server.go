package kafkatest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// A process that wants a cluster sends one request on a connection of its own and
// gets one answer. The connection is its lease: the cluster stays while it is open.
type leaseRequest struct{ Spec Spec }

type leaseAnswer struct {
	Seeds    []string
	Security *security
	Error    string
	Missing  *MissingError
}

// Server shares clusters between processes: it starts each kind once, when
// somebody asks for it. Make one with [Listen].
type Server struct {
	// Idle is how long a cluster that nobody uses is kept: 3 minutes unless it is
	// set before Serve.
	Idle time.Duration

	listener net.Listener

	mu       sync.Mutex // guards what follows
	clusters map[Spec]*leased
	conns    map[net.Conn]struct{}
}

// leased is a cluster of the server.
type leased struct {
	starting sync.Mutex // held while cluster is started or looked at
	cluster  *Cluster   // nil before the start and after the end

	users int         // guarded by Server.mu
	timer *time.Timer // guarded by Server.mu; runs while there are no users
}

// Listen opens a server on a local port; Serve makes it work.
func Listen() (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	return &Server{listener: l, Idle: 3 * time.Minute, clusters: map[Spec]*leased{}, conns: map[net.Conn]struct{}{}}, nil
}

// Addr is what KTXN_KAFKATEST must be in the processes that use the server.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Serve answers until ctx ends, then ends every cluster and returns.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	stop := context.AfterFunc(ctx, func() {
		s.listener.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		for conn := range s.conns {
			conn.Close()
		}
	})
	defer func() {
		cancel()
		stop()
		wg.Wait()
		s.end()
	}()
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("kafkatest: %w", err)
		}
		wg.Go(func() {
			defer conn.Close()
			if s.track(ctx, conn) {
				s.answer(ctx, conn)
				s.untrack(conn)
			}
		})
	}
}

// track makes the end of ctx close the connection.
func (s *Server) track(ctx context.Context, conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[conn] = struct{}{}
	return ctx.Err() == nil
}

func (s *Server) untrack(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// answer serves one lease to its end.
func (s *Server) answer(ctx context.Context, conn net.Conn) {
	var req leaseRequest
	if err := json.NewDecoder(conn).Decode(&req); err != nil {
		return
	}
	spec, err := req.Spec.check()
	if err != nil {
		_ = json.NewEncoder(conn).Encode(leaseAnswer{Error: err.Error()})
		return
	}
	l := s.join(spec)
	defer s.leave(l)
	c, err := l.get(ctx, spec)
	var a leaseAnswer
	if err != nil {
		a.Error = err.Error()
		_ = errors.As(err, &a.Missing)
	} else {
		a.Seeds, a.Security = c.seeds, c.sec
	}
	if json.NewEncoder(conn).Encode(a) == nil && err == nil {
		_, _ = conn.Read(make([]byte, 1)) // until the other side goes
	}
}

func (s *Server) join(spec Spec) *leased {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.clusters[spec]
	if l == nil {
		l = &leased{}
		s.clusters[spec] = l
	}
	l.users++
	if l.timer != nil {
		l.timer.Stop()
	}
	return l
}

func (s *Server) leave(l *leased) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	l.timer = time.AfterFunc(s.Idle, func() {
		l.starting.Lock()
		defer l.starting.Unlock()
		s.mu.Lock()
		used := l.users > 0
		s.mu.Unlock()
		// Whoever joins now waits for starting, and starts it again.
		if !used {
			l.end()
		}
	})
}

// get answers the cluster, started if it does not run, or runs no more.
func (l *leased) get(ctx context.Context, spec Spec) (*Cluster, error) {
	l.starting.Lock()
	defer l.starting.Unlock()
	if l.cluster != nil {
		for _, n := range l.cluster.nodes {
			if !n.reachable() {
				l.end()
				break
			}
		}
	}
	if l.cluster != nil {
		return l.cluster, nil
	}
	c, err := Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	l.cluster = c
	return c, nil
}

// end is called with starting held.
func (l *leased) end() {
	if l.cluster != nil {
		l.cluster.end()
		l.cluster = nil
	}
}

// end ends what is left when nobody is served any more.
func (s *Server) end() {
	s.mu.Lock()
	all := s.clusters
	s.clusters = map[Spec]*leased{}
	for _, l := range all {
		if l.timer != nil {
			l.timer.Stop()
		}
	}
	s.mu.Unlock()
	for _, l := range all {
		l.starting.Lock() // a timer that fired has it
		l.end()
		l.starting.Unlock()
	}
}

// lease asks a server for a cluster; release gives it back.
func lease(ctx context.Context, addr string, spec Spec) (_ *Cluster, release func(), err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("kafkatest: the server that %s names: %w", serverEnv, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	var a leaseAnswer
	if err := errors.Join(json.NewEncoder(conn).Encode(leaseRequest{spec}), json.NewDecoder(conn).Decode(&a)); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, nil, fmt.Errorf("kafkatest: ask the server at %s: %w", addr, err)
	}
	switch {
	case a.Missing != nil:
		return nil, nil, a.Missing
	case a.Error != "":
		return nil, nil, errors.New(a.Error)
	}
	return &Cluster{spec: spec, seeds: a.Seeds, sec: a.Security, shared: true}, func() { conn.Close() }, nil
}
