package txnsession

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/statemachine"
	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/internal/wire"
	"github.com/ktxn/ktxn/netclient"
)

// Initialize gets the session its identity.
//
// The first call takes the transactional id over: it aborts the transaction
// that another holder left open and fences that holder. Every later call sends
// the identity that the session holds (KIP-360), so that a zombie which
// recovers cannot fence the rightful owner: it fails with [IsFenced]. (Brokers
// before Kafka 2.5 do not know the second form; there every call takes over.)
//
// Legal in StateUninitialized, StateReady and StateAbortableError, and while a
// commit or abort is unresolved: then it first asks the coordinator what
// became of that and tells by Outcome. It is refused for an unresolved
// two-phase transaction, which only its end may resolve.
//
// If ctx ends first the session is in StateUninitialized and Initialize may be
// called again; a takeover may have happened. TRANSACTIONAL_ID_AUTHORIZATION_FAILED
// leaves the session as usable: call again after the grant.
func (s *Session) Initialize(ctx context.Context) error {
	const op = "initialize"
	release, err := s.take(ctx, statemachine.CallInitialize, op)
	if err != nil {
		return err
	}
	defer release()
	ctx, done := s.bound(ctx)
	defer done()

	s.mu.Lock()
	state, t := s.state, s.txn
	s.mu.Unlock()
	switch state {
	case StateCommitting, StateAborting:
		return s.initializeUnresolved(ctx, op, t)
	case StateAbortableError:
		if err := s.discard(ctx, t); err != nil {
			return s.fail(op, isNeverSent, false, err)
		}
		s.mu.Lock()
		if s.state != StateAbortableError {
			defer s.mu.Unlock()
			return s.stateErrorLocked(op) // a participant's late answer was a fence
		}
		s.stopBeatsLocked()
		s.mu.Unlock()
	}
	if err := s.initialize(ctx, op, false); err != nil {
		return err
	}
	s.concludeInitialized(ctx, t)
	return nil
}

// InitializeKeepPrepared is Initialize for the recovery of a two-phase
// transaction (KIP-939): it fences the former holder and leaves the
// transaction that is open as it is. The session is then in StatePrepared, and
// Complete, Commit or Abort ends the transaction; or in StateReady, if nothing
// was open, which is a success: the end may have happened already.
//
// Legal in StateUninitialized. On a cluster that cannot keep a prepared
// transaction it fails with [ErrTwoPhaseCommitUnsupported] and nothing is sent
// that could abort it; Resume with the stored PreparedTxn still works.
func (s *Session) InitializeKeepPrepared(ctx context.Context) error {
	const op = "initialize keeping the prepared transaction"
	release, err := s.take(ctx, statemachine.CallInitializeKeepPrepared, op)
	if err != nil {
		return err
	}
	defer release()
	ctx, done := s.bound(ctx)
	defer done()
	return s.initialize(ctx, op, true)
}

// initializeUnresolved resolves what became of t before the epoch moves, since
// afterwards the coordinator no longer knows.
func (s *Session) initializeUnresolved(ctx context.Context, op string, t *transaction) error {
	out, err := s.inquire(ctx, t)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.errorLocked(op, isUnknown, false, err)
	}
	if out.Verdict != Open && out.Verdict != Unknown {
		_ = s.endFound(op, t, out, nil, 0) // known from here on, whatever becomes of the rest
		return s.initialize(ctx, op, false)
	}
	s.mu.Lock()
	t.seenOpen = out.Verdict == Open
	s.mu.Unlock()
	if err := s.initialize(ctx, op, false); err != nil {
		return err
	}
	s.concludeInitialized(ctx, t)
	return nil
}

// concludeInitialized records what became of t, if that is not known yet. It is
// called once InitProducerId has been answered, which is when no transaction of
// the id is open or being ended any more.
func (s *Session) concludeInitialized(ctx context.Context, t *transaction) {
	if t == nil {
		return
	}
	s.mu.Lock()
	ended, open := t.ended, t.commitOpenLocked() || t.wasPrepared
	s.mu.Unlock()
	var out Outcome
	switch {
	case ended:
		return
	case !open:
		out = Outcome{Aborted, Evidence{Source: "answer", ProducerEpoch: t.ident.epoch, Text: "Initialize aborted it"}}
	default:
		// Either this has aborted it, or a copy of the end that was still
		// under way came before. Only a marker knows.
		var err error
		if out, err = s.findMarker(ctx, t); err != nil {
			out = Outcome{Unknown, Evidence{Source: "none", Text: err.Error()}}
		}
	}
	s.conclude(t, out.Verdict, out.Evidence, nil)
}

// initialize sends InitProducerId. The slot is held.
func (s *Session) initialize(ctx context.Context, op string, keep bool) error {
	version, err := s.beforeInit(ctx, keep)
	if err != nil {
		return s.fail(op, isNeverSent, false, err)
	}
	s.mu.Lock()
	held := s.ident
	s.setState(statemachine.Initialize, nil)
	s.unlock()

	res := s.lane.Do(ctx, s.initCall(held, keep))
	if res.Class == transport.ClassFenced && held != noIdentity {
		if bumped, ok := s.timedOut(ctx, held); ok {
			res = s.lane.Do(ctx, s.initCall(bumped, keep))
		}
	}

	s.mu.Lock()
	defer s.unlock()
	if res.Err != nil {
		return s.initFailedLocked(op, keep, res)
	}
	next, ongoing := readInit(res.Resp)
	if next.id < 0 || next.epoch < 0 {
		s.setState(statemachine.GaveUp, nil)
		return s.errorLocked(op, 0, false, fmt.Errorf("the coordinator answered producer id %d, epoch %d", next.id, next.epoch))
	}
	s.adoptLocked(next)
	s.rules, s.mustInit, s.markers = version, false, nil
	if keep && ongoing != noIdentity {
		t := s.newTransaction(next, version)
		t.gateLocked()
		t.sealed, t.worked, t.wasPrepared, t.from = true, true, true, PreparedTxn{
			TransactionalID: s.id, ProducerID: ongoing.id, ProducerEpoch: ongoing.epoch, TransactionVersion: version,
		}
		s.txn = t
		s.setState(statemachine.KeptPrepared, nil)
		s.startBeatsLocked(t)
		return nil
	}
	s.setState(statemachine.Initialized, nil)
	return nil
}

// timedOut tells a fence from the coordinator's own abort, after which brokers
// below transaction.version 2 refuse the epoch that the session holds: they have
// bumped it by one, for a timeout as for an InitProducerId that finds the
// transaction open. Another owner would have bumped it once more, since it found
// that transaction open too; so the coordinator's word is proof, provided that
// it did know of the transaction.
func (s *Session) timedOut(ctx context.Context, held identity) (bumped identity, ok bool) {
	s.mu.Lock()
	t := s.txn
	ours := t != nil && !t.ended && !t.newRules() && t.known && t.ident == held && !t.wasPrepared && (!(t.openEnd && t.endCommit) || t.seenOpen)
	s.mu.Unlock()
	if !ours {
		return held, false
	}
	st, err := s.describe(ctx)
	bumped = identity{held.id, held.epoch + 1}
	return bumped, err == nil && strings.HasSuffix(st.State, "Abort") &&
		st.ProducerID == bumped.id && st.ProducerEpoch == bumped.epoch
}

// beforeInit asks what must be known before anything is sent that could abort
// a transaction.
func (s *Session) beforeInit(ctx context.Context, keep bool) (version int16, err error) {
	for _, need := range []struct {
		wanted bool
		what   netclient.Capability
	}{{s.cfg.twoPhase, netclient.TwoPhaseCommit}, {keep, netclient.KeepPrepared}} {
		if !need.wanted {
			continue
		}
		if ok, err := s.tc.Supports(ctx, string(need.what)); err != nil {
			return 0, err
		} else if !ok {
			return 0, ErrTwoPhaseCommitUnsupported
		}
	}
	if s.cfg.sessionTimeout > 0 {
		ok, err := s.tc.Supports(ctx, string(netclient.TxnHeartbeat))
		if err != nil {
			return 0, err
		}
		if err := s.setCanBeat(ok); err != nil {
			return 0, err
		}
	}
	return s.tc.TransactionVersion(ctx, s.id, true)
}

// setCanBeat notes whether the cluster takes heartbeats, and says once if not.
func (s *Session) setCanBeat(ok bool) error {
	if !ok && s.cfg.requireHeartbeat {
		return ErrHeartbeatUnsupported
	}
	s.mu.Lock()
	said := s.saidNoBeats
	s.canBeat = ok
	s.saidNoBeats = said || !ok
	s.mu.Unlock()
	if !ok && !said {
		s.tc.Logger().Log(kgo.LogLevelWarn, "the cluster has no transaction heartbeats (KIP-1309); going on without",
			"transactional_id", s.id, "transaction_session_timeout", s.cfg.sessionTimeout)
	}
	return nil
}

func (s *Session) initCall(held identity, keep bool) transport.Call {
	s.mu.Lock()
	beat := s.canBeat
	s.mu.Unlock()
	c := transport.Call{Target: transport.TxnCoordinator(s.id)}
	plain := kmsg.NewInitProducerIDRequest()
	plain.TransactionalID = kmsg.StringPtr(s.id)
	plain.TransactionTimeoutMillis = int32(s.cfg.txnTimeout / time.Millisecond)
	plain.ProducerID, plain.ProducerEpoch = held.id, held.epoch
	if !keep && !s.cfg.twoPhase && !beat {
		c.MaxVersion = 5
		c.New = func() kmsg.Request { req := plain; return &req }
		c.Code = func(r kmsg.Response) (int16, string) { return r.(*kmsg.InitProducerIDResponse).ErrorCode, "" }
		return c
	}
	c.MinVersion = 6
	if beat {
		c.MinVersion = 7
	}
	c.New = func() kmsg.Request {
		req := wire.NewInitProducerIDRequest()
		req.InitProducerIDRequest = plain
		req.Enable2Pc, req.KeepPreparedTxn = s.cfg.twoPhase, keep
		if beat {
			req.TransactionSessionTimeoutMillis = int32(s.cfg.sessionTimeout / time.Millisecond)
		}
		return req
	}
	c.Code = func(r kmsg.Response) (int16, string) { return r.(*wire.InitProducerIDResponse).ErrorCode, "" }
	return c
}

func readInit(r kmsg.Response) (next, ongoing identity) {
	switch r := r.(type) {
	case *kmsg.InitProducerIDResponse:
		return identity{r.ProducerID, r.ProducerEpoch}, noIdentity
	case *wire.InitProducerIDResponse:
		return identity{r.ProducerID, r.ProducerEpoch}, identity{r.OngoingTxnProducerID, r.OngoingTxnProducerEpoch}
	}
	return noIdentity, noIdentity
}

// adoptLocked moves the session to id; sequence numbers start again.
func (s *Session) adoptLocked(id identity) {
	if id != s.ident {
		clear(s.seqs)
	}
	s.ident = id
}

func (s *Session) initFailedLocked(op string, keep bool, res transport.Result) error {
	err := res.Err
	if res.Class == transport.ClassFenced || res.Class == transport.ClassFatal && !errors.Is(err, kgo.ErrClientClosed) {
		e := s.killLocked(op, factIf(res.Class == transport.ClassFenced, isFenced), err)
		e.MaybeSent = res.Unanswered
		return e
	}
	switch {
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed) && s.cfg.twoPhase:
		err = fmt.Errorf("%w: WRITE or TWO_PHASE_COMMIT on the transactional id is not granted, or the broker has transaction.two.phase.commit.enable=false", err)
	case res.Class == transport.ClassUnsupported && (keep || s.cfg.twoPhase):
		err = fmt.Errorf("%w: %w", ErrTwoPhaseCommitUnsupported, err)
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		err = fmt.Errorf("%w: TransactionTimeout of %v is above the broker's transaction.max.timeout.ms", err, s.cfg.txnTimeout)
	}
	f := facts(0)
	if !res.Sent {
		f = isNeverSent
	}
	s.setState(statemachine.GaveUp, nil)
	e := s.errorLocked(op, f, res.Unanswered, err)
	s.err = e
	return e
}

func factIf(ok bool, f facts) facts {
	if ok {
		return f
	}
	return 0
}
