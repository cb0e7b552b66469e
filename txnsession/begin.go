package txnsession

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/statemachine"
	"github.com/ktxn/ktxn/internal/transport"
)

// Begin opens a transaction. Legal in StateReady.
//
// The coordinator learns of it with the first work, so there is usually no
// I/O. Below transaction.version 2 Begin asks whether that still holds. If the
// rules have changed since, or an earlier end left open whether a request is
// still under way, it initialises first: then it may fail like Initialize, and
// the session is in StateUninitialized.
func (s *Session) Begin(ctx context.Context) error {
	const op = "begin"
	release, err := s.take(ctx, statemachine.CallBegin, op)
	if err != nil {
		return err
	}
	defer release()
	ctx, done := s.bound(ctx)
	defer done()

	s.mu.Lock()
	old := s.rules < 2
	s.mu.Unlock()
	version, err := s.tc.TransactionVersion(ctx, s.id, old)
	if err != nil {
		return s.fail(op, isNeverSent, false, err)
	}
	s.mu.Lock()
	must := s.mustInit || (version < 2) != (s.rules < 2)
	s.mu.Unlock()
	if must {
		if err := s.initialize(ctx, op, false); err != nil {
			return err
		}
	}

	s.mu.Lock()
	defer s.unlock()
	if s.state != StateReady || s.closeBegun {
		return s.stateErrorLocked(op)
	}
	t := s.newTransaction(s.ident, s.rules)
	s.txn = t
	s.setState(statemachine.Begin, nil)
	s.markers.start(s)
	s.startBeatsLocked(t)
	return nil
}

// markerGate holds back the first work of a transaction until the markers of
// the last one are written. Without it a broker that finds them missing sleeps
// 20 ms (add.partitions.to.txn.retry.backoff.ms) before it looks again.
type markerGate struct {
	open    chan struct{}
	started bool
}

// gateLimit bounds how long work is held back: after that the broker's own
// CONCURRENT_TRANSACTIONS is retried like any other.
const gateLimit = time.Second

func newMarkerGate() *markerGate { return &markerGate{open: make(chan struct{})} }

// start begins to ask; the session's mu is held. Starting with the next
// transaction and not with the end of the last leaves a committer's requests
// at one per commit.
func (g *markerGate) start(s *Session) {
	if g == nil || g.started {
		return
	}
	g.started = true
	s.work.Go(func() {
		defer close(g.open)
		ctx, cancel := context.WithTimeout(s.closing, gateLimit)
		defer cancel()
		for wait := 200 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
			state, err := s.describe(ctx)
			if err != nil || !strings.HasPrefix(state.State, "Prepare") {
				return
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
		}
	})
}

// wait waits for the gate, for ctx, or for the transaction's end.
func (g *markerGate) wait(ctx, txn context.Context) error {
	if g == nil {
		return nil
	}
	select {
	case <-g.open:
		return nil
	default:
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-txn.Done():
		return ErrState
	}
}

// describe asks the coordinator for what it knows of the transactional id. It
// changes nothing, so a fenced session may ask as well.
func (s *Session) describe(ctx context.Context) (kmsg.DescribeTransactionsResponseTransactionState, error) {
	res := s.lane.Do(ctx, transport.Call{
		Target: transport.TxnCoordinator(s.id),
		New: func() kmsg.Request {
			req := kmsg.NewPtrDescribeTransactionsRequest()
			req.TransactionalIDs = []string{s.id}
			return req
		},
		Code: func(r kmsg.Response) (int16, string) {
			for _, t := range r.(*kmsg.DescribeTransactionsResponse).TransactionStates {
				return t.ErrorCode, ""
			}
			return 0, ""
		},
	})
	if res.Err != nil {
		return kmsg.DescribeTransactionsResponseTransactionState{}, res.Err
	}
	for _, t := range res.Resp.(*kmsg.DescribeTransactionsResponse).TransactionStates {
		if t.TransactionalID == s.id {
			return t, nil
		}
	}
	return kmsg.DescribeTransactionsResponseTransactionState{}, errNoState
}
