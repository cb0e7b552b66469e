package txnsession

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/link"
	"github.com/ktxn/ktxn/internal/statemachine"
	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/netclient"
)

// identity is what the coordinator knows a session by. It is read and written
// as one.
type identity struct {
	id    int64
	epoch int16
}

var noIdentity = identity{-1, -1}

// seqKey names a partition as its sequence numbers see it: a topic that was
// deleted and made again is another.
type seqKey struct {
	topic string
	id    [16]byte
	part  int32
}

// Session is one transactional id and the transaction that is open under it.
// Make it with New, Resume or ResumePrepared. All methods may be called by
// several goroutines at once.
type Session struct {
	nc        *netclient.Client
	tc        *transport.Client
	lane      *transport.Lane
	closeLane func()
	id        string
	cfg       config
	kind      statemachine.Kind

	// op is held by the one call that moves the session. It is taken before
	// mu and, unlike mu, may be held across I/O.
	op chan struct{}

	closing      context.Context // ends when Close begins
	beginClosing context.CancelFunc
	closed       chan struct{} // closed when Close has done its work

	work sync.WaitGroup // every goroutine of the session

	attachOnce sync.Once
	attached   any

	mu          sync.Mutex // guards what follows; never held across I/O or callbacks
	state       State
	err         error
	running     statemachine.Call // the call that holds op
	busy        bool              // whether one does
	ident       identity
	rules       int16 // transaction.version of the last Initialize or Begin
	mustInit    bool  // the epoch must move before the next Begin
	txn         *transaction
	seqs        map[seqKey]int32
	markers     *markerGate
	stopBeats   context.CancelFunc
	canBeat     bool
	saidNoBeats bool
	changes     []StateChange
	telling     bool
	closeBegun  bool
}

// New returns a session for transactionalID in StateUninitialized. It does no
// I/O; Initialize does. The id should be stable over restarts of the process,
// or nothing fences the transaction that a crash left open.
func New(nc *netclient.Client, transactionalID string, opts ...Opt) (*Session, error) {
	return newSession("new", nc, transactionalID, opts)
}

func newSession(op string, nc *netclient.Client, transactionalID string, opts []Opt) (*Session, error) {
	bad := func(err error) (*Session, error) {
		return nil, &Error{Op: op, Err: err, facts: isNeverSent}
	}
	if nc == nil {
		return bad(errors.New("the netclient is nil"))
	}
	if transactionalID == "" {
		return bad(ErrEmptyID)
	}
	// The length that a two-byte compact string holds, as in kgo.
	if len(transactionalID) > 16382 {
		return bad(fmt.Errorf("the transactional id has %d bytes, more than 16382", len(transactionalID)))
	}
	cfg, err := newConfig(opts)
	if err != nil {
		return bad(err)
	}
	s := &Session{
		nc: nc, tc: link.Transport(nc), id: transactionalID, cfg: cfg,
		kind:   statemachine.Kind{TwoPhase: cfg.twoPhase},
		op:     make(chan struct{}, 1),
		closed: make(chan struct{}),
		ident:  noIdentity,
		seqs:   make(map[seqKey]int32),
	}
	s.closing, s.beginClosing = context.WithCancel(context.Background())
	if cfg.ownConnection {
		s.lane, s.closeLane = s.tc.OwnLane()
	} else {
		s.lane = s.tc.Lane()
	}
	return s, nil
}

// TransactionalID returns the id that the session was made with.
func (s *Session) TransactionalID() string { return s.id }

// Client returns the netclient that the session was made with.
func (s *Session) Client() *netclient.Client { return s.nc }

// State returns where the session stands. It does not block.
func (s *Session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Err returns why the session is in an error state, or the open question while
// an end is unresolved, else nil. It does not block.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Reusable reports whether the session is in StateReady or an Abort away from
// it, so that a pool may give it to the next user. It does not block.
func (s *Session) Reusable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind.Resumed {
		return false
	}
	switch s.state {
	case StateReady, StateInTransaction, StateAbortableError:
		return true
	case StateAborting:
		return s.busy // else the abort is unresolved
	}
	return false
}

// ProducerID returns the producer id, -1 before Initialize.
func (s *Session) ProducerID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ident.id
}

// ProducerEpoch returns the producer epoch, -1 before Initialize. It moves with
// Initialize and, from transaction.version 2 on, with each end.
func (s *Session) ProducerEpoch() int16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ident.epoch
}

// take waits for the slot of the call that moves the session, after looking
// whether c is legal at all: a wrong call is refused at once. The caller
// releases it. The state must be looked at again, since a call that went
// before may have moved it.
func (s *Session) take(ctx context.Context, c statemachine.Call, op string) (release func(), err error) {
	s.mu.Lock()
	if !s.legalLocked(c) {
		err := s.stateErrorLocked(op)
		s.mu.Unlock()
		return nil, err
	}
	s.mu.Unlock()
	release, err = s.slot(ctx, c, op)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if !s.legalLocked(c) {
		err = s.stateErrorLocked(op)
		s.mu.Unlock()
		release()
		return nil, err
	}
	s.mu.Unlock()
	return release, nil
}

// slot waits for the slot itself.
func (s *Session) slot(ctx context.Context, c statemachine.Call, op string) (release func(), err error) {
	select {
	case s.op <- struct{}{}:
	default:
		select {
		case s.op <- struct{}{}:
		case <-ctx.Done():
			return nil, s.fail(op, isNeverSent, false, context.Cause(ctx))
		case <-s.closing.Done():
			return nil, s.fail(op, isNeverSent, false, ErrClosed)
		}
	}
	s.mu.Lock()
	s.running, s.busy = c, true
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.busy = false
		s.unlock()
		<-s.op
	}, nil
}

func (s *Session) legalLocked(c statemachine.Call) bool {
	return statemachine.May(statemachine.State(s.state), s.kind, c)
}

// fail builds the error of op from the present state.
func (s *Session) fail(op string, f facts, maybeSent bool, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errorLocked(op, f, maybeSent, err)
}

// bound returns a context that also ends when the session is closed.
func (s *Session) bound(ctx context.Context) (context.Context, func()) {
	return joinContext(ctx, s.closing, ErrClosed)
}

// joinContext returns ctx, ended by other as well, with cause as its cause.
func joinContext(ctx, other context.Context, cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(cause) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

func (s *Session) tell(c StateChange) {
	s.tc.EachHook(func(h kgo.Hook) {
		if h, ok := h.(HookStateChange); ok {
			h.OnStateChange(c)
		}
	})
	s.tc.Logger().Log(kgo.LogLevelDebug, "transaction session changed its state",
		"transactional_id", c.TransactionalID, "from", c.From.String(), "to", c.To.String(),
		"producer_id", c.ProducerID, "producer_epoch", c.ProducerEpoch, "err", c.Err)
}

func init() {
	link.Attach = func(session any, make func() any) any {
		s := session.(*Session)
		s.attachOnce.Do(func() { s.attached = make() })
		return s.attached
	}
}
