package txnsession

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/heartbeat"
	"github.com/ktxn/ktxn/internal/statemachine"
	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/internal/wire"
	"github.com/ktxn/ktxn/netclient"
)

// HookHeartbeatMiss is called when a transaction heartbeat (KIP-1309) got no
// good answer and there is still time for another. It is registered like
// [HookStateChange].
type HookHeartbeatMiss interface {
	// OnHeartbeatMiss gets the misses in a row, the time left until the
	// coordinator may abort the transaction, and the last error.
	OnHeartbeatMiss(transactionalID string, missed int, left time.Duration, err error)
}

// Heartbeat tells the coordinator that the session is alive (KIP-1309). With
// [TransactionSessionTimeout] the session does so by itself while a transaction
// is open; this is for those who hold a transaction in another way.
//
// Legal in StateInTransaction and StatePrepared. On a cluster without
// TxnHeartbeat it fails with [ErrHeartbeatUnsupported] and sends nothing. An
// answer that fences ends the session.
func (s *Session) Heartbeat(ctx context.Context) error {
	const op = "heartbeat"
	s.mu.Lock()
	t := s.txn
	if !s.legalLocked(statemachine.CallHeartbeat) || t == nil {
		defer s.mu.Unlock()
		return s.stateErrorLocked(op)
	}
	s.mu.Unlock()
	ctx, done := s.bound(ctx)
	defer done()
	ok, err := s.tc.Supports(ctx, string(netclient.TxnHeartbeat))
	switch {
	case err != nil:
		return s.fail(op, isNeverSent, false, err)
	case !ok:
		return s.fail(op, isNeverSent, false, ErrHeartbeatUnsupported)
	}
	res := s.beat(ctx, t)
	if res.Err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.unlock()
	if res.Class == transport.ClassFenced || res.Class == transport.ClassFatal && !errors.Is(res.Err, kgo.ErrClientClosed) {
		if t.sealed && !t.ended && s.txn == t {
			return s.errorLocked(op, 0, false, res.Err) // its end finds out
		}
		if s.txn == t && !t.ended {
			return s.killLocked(op, factIf(res.Class == transport.ClassFenced, isFenced), res.Err)
		}
		return s.stateErrorLocked(op)
	}
	return s.errorLocked(op, factIf(!res.Sent, isNeverSent), res.Unanswered, res.Err)
}

func (s *Session) beat(ctx context.Context, t *transaction) transport.Result {
	return s.lane.Do(ctx, transport.Call{
		Target: transport.TxnCoordinator(s.id),
		New: func() kmsg.Request {
			req := wire.NewTxnHeartbeatRequest()
			req.ApiKey = s.tc.DraftKey("TxnHeartbeat")
			req.TransactionalID = s.id
			req.ProducerID, req.ProducerEpoch = t.ident.id, t.ident.epoch
			return req
		},
		Code: func(r kmsg.Response) (int16, string) {
			resp := r.(*wire.TxnHeartbeatResponse)
			if resp.ErrorMessage != nil {
				return resp.ErrorCode, *resp.ErrorMessage
			}
			return resp.ErrorCode, ""
		},
	})
}

// startBeatsLocked beats while t is open, if that was asked for and the
// cluster takes it. s.mu is held.
func (s *Session) startBeatsLocked(t *transaction) {
	if s.cfg.sessionTimeout <= 0 || !s.canBeat {
		return
	}
	ctx, cancel := context.WithCancel(s.closing)
	s.stopBeats = cancel
	timeout := s.cfg.sessionTimeout
	loop := heartbeat.Start(ctx, timeout/3, timeout, func(ctx context.Context) (time.Duration, error) {
		// A beat of its own length: what hangs is a miss, and told.
		ctx, cancel := context.WithTimeout(ctx, timeout/3)
		defer cancel()
		res := s.beat(ctx, t)
		if res.Err != nil && (res.Class == transport.ClassFenced || res.Class == transport.ClassFatal || res.Class == transport.ClassAbortable) {
			return 0, heartbeat.Permanent(res.Err)
		}
		return 0, res.Err
	}, heartbeat.OnMiss(func(missed int, left time.Duration, err error) {
		s.tc.EachHook(func(h kgo.Hook) {
			if h, ok := h.(HookHeartbeatMiss); ok {
				h.OnHeartbeatMiss(s.id, missed, left, err)
			}
		})
	}))
	s.work.Go(func() {
		defer cancel()
		<-loop.Done()
		s.beatsEnded(t, loop.Err())
	})
}

// beatsEnded draws the conclusion from why the beats have ended.
func (s *Session) beatsEnded(t *transaction, reason error) {
	s.mu.Lock()
	defer s.unlock()
	if t.ended || t.sealed || s.txn != t || s.state == StateInitializing || s.state == StateClosed || s.closing.Err() != nil {
		return
	}
	var ke *kerr.Error
	switch {
	case errors.As(reason, &ke):
		if transport.Classify(keyInitProducerID, ke.Code) == transport.ClassFenced {
			_ = s.killLocked("heartbeat", isFenced, reason) // the next call tells it
			return
		}
		s.setState(statemachine.Fail, s.errorLocked("heartbeat", isAbortable|isNotCommitted, false, reason))
	case errors.Is(reason, heartbeat.ErrDeadline):
		// The coordinator may have aborted by now; a commit would tell. Only
		// an abort can be counted on.
		s.setState(statemachine.Fail, s.errorLocked("heartbeat", isAbortable, true, reason))
	}
}

// stopBeatsLocked ends the beats without waiting; Close joins them.
func (s *Session) stopBeatsLocked() {
	if s.stopBeats != nil {
		s.stopBeats()
		s.stopBeats = nil
	}
}
