package txnsession

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/statemachine"
	"github.com/ktxn/ktxn/internal/transport"
)

var errElsewhere = errors.New("the transaction was committed elsewhere")

// endRefused handles INVALID_TXN_STATE and TRANSACTION_ABORTABLE. The first
// says of a commit that this request did not commit, and of an abort that
// there is nothing to abort, or that a commit came before it. A prepared
// transaction may have been committed by somebody else all the same: by an
// EndTxn of the old rules, after which the coordinator refuses ours.
func (s *Session) endRefused(ctx context.Context, op string, t *transaction, commit bool, res transport.Result) error {
	if commit && !t.unsure(res) && !t.prepared() {
		return s.notCommitted(op, t, res.Err)
	}
	if commit && res.Code == kerr.TransactionAbortable.Code && !t.unsure(res) {
		return s.endOpen(op, t, commit, res.Err)
	}
	// A coordinator that has just lost its partition may have answered from
	// what it remembered: ask again.
	out, err := s.inquire(ctx, t)
	switch {
	case err != nil && (t.unsure(res) || t.prepared()):
		return s.endOpen(op, t, commit, errors.Join(res.Err, err))
	case out.Verdict == Committed && commit, out.Verdict == Aborted && !commit:
		return s.endFound(op, t, out, nil, 0)
	case out.Verdict == Committed:
		return s.endFound(op, t, out, errors.Join(errElsewhere, res.Err), 0)
	case out.Verdict == Open, out.Verdict == Unknown && (t.prepared() || commit && t.open()):
		return s.endOpen(op, t, commit, res.Err)
	case commit:
		return s.notCommitted(op, t, res.Err)
	case !t.prepared():
		// No commit of it was ever sent: there was nothing to abort.
		return s.endFound(op, t, Outcome{Aborted, Evidence{Source: "answer", ProducerEpoch: t.ident.epoch, Text: res.Err.Error()}}, nil, 0)
	}
	return s.endOpen(op, t, commit, res.Err)
}

// endFenced handles PRODUCER_FENCED and INVALID_PRODUCER_EPOCH, which say
// nothing about the outcome: the same answer is given to a commit that was
// fenced off and to the repetition of one that succeeded before another owner
// came.
func (s *Session) endFenced(ctx context.Context, op string, t *transaction, commit bool, res transport.Result) error {
	out, qerr := s.inquire(ctx, t)
	if qerr != nil {
		return s.endOpen(op, t, commit, errors.Join(res.Err, qerr))
	}
	if s.kind.Resumed {
		switch {
		case out.Verdict == Committed && commit, out.Verdict == Aborted && !commit:
			return s.endFound(op, t, out, nil, 0)
		case out.Verdict == Committed:
			return s.endFound(op, t, out, errors.Join(errElsewhere, res.Err), isFenced)
		case out.Verdict == Aborted:
			return s.endFound(op, t, out, res.Err, isNotCommitted|isFenced)
		}
		return s.endOpen(op, t, commit, res.Err)
	}
	here := out.Evidence.Source == "describe" // the coordinator's last word is about this transaction
	switch {
	case out.Verdict == Committed:
		return s.endCommitted(op, t, out, commit, here, isFenced, res.Err)
	case out.Verdict == Aborted && here && commit:
		// Not another owner: the coordinator timed the transaction out.
		return s.notCommitted(op, t, res.Err)
	case out.Verdict == Aborted && here:
		if err := s.initialize(ctx, op, false); err != nil {
			return s.andNotCommitted(err)
		}
		s.conclude(t, Aborted, out.Evidence, nil)
		return nil
	case out.Verdict != Aborted && (commit && t.open() || t.prepared()):
		return s.endOpen(op, t, commit, res.Err)
	}
	err := s.kill(op, isFenced|isNotCommitted, res.Err)
	s.conclude(t, Aborted, Evidence{Source: "answer", ProducerEpoch: t.ident.epoch, Text: res.Err.Error()}, err)
	return err
}

// endForgotten handles a coordinator that no longer knows the transactional id
// (transactional.id.expiration.ms). A live session is done for: to initialise
// silently would break the fencing between two idle owners.
func (s *Session) endForgotten(ctx context.Context, op string, t *transaction, commit bool, res transport.Result) error {
	if !t.prepared() && (!commit || !t.unsure(res)) {
		err := s.kill(op, isNotCommitted, res.Err)
		s.conclude(t, Aborted, Evidence{Source: "answer", ProducerEpoch: t.ident.epoch, Text: res.Err.Error()}, err)
		return err
	}
	out, err := s.findMarker(ctx, t)
	switch {
	case err == nil && out.Verdict == Committed:
		return s.endCommitted(op, t, out, commit, false, 0, res.Err)
	case err == nil && !commit && s.kind.Resumed:
		return s.endFound(op, t, out, nil, 0)
	case err == nil:
		if !s.kind.Resumed {
			_ = s.kill(op, isNotCommitted, res.Err) // the error told is endFound's
		}
		return s.endFound(op, t, out, res.Err, isNotCommitted|isFatal)
	}
	if ctx.Err() != nil {
		return s.endOpen(op, t, commit, errors.Join(res.Err, err))
	}
	lost := fmt.Errorf("%w: %w", ErrOutcomeLost, res.Err)
	e := s.kill(op, isUnknown, lost)
	s.conclude(t, Unknown, Evidence{Source: "none", Text: lost.Error()}, e)
	return e
}

// endCommitted ends t, which was found to be committed. Unless the session may
// go on it is lost, for cause.
func (s *Session) endCommitted(op string, t *transaction, out Outcome, commit, goOn bool, f facts, cause error) error {
	var err error
	if !commit {
		err = errors.Join(errElsewhere, cause)
	}
	s.conclude(t, out.Verdict, out.Evidence, err) // first: what is fatal must not claim that it is not committed
	if !goOn && !s.kind.Resumed {
		_ = s.kill(op, f, cause) // the error told is endFound's
	}
	return s.endFound(op, t, out, err, 0)
}

// endFound ends t with an outcome that was found out rather than answered.
func (s *Session) endFound(op string, t *transaction, out Outcome, err error, f facts) error {
	if s.kind.Resumed {
		return s.endResumed(op, t, out.Verdict, out.Evidence, f, err)
	}
	s.mu.Lock()
	s.mustInit = true // the next identity was not told
	s.mu.Unlock()
	s.conclude(t, out.Verdict, out.Evidence, err)
	s.mu.Lock()
	defer s.unlock()
	s.setState(statemachine.Ended, nil)
	if err == nil {
		return nil
	}
	return s.errorLocked(op, f, false, err)
}

func (s *Session) kill(op string, f facts, err error) error {
	s.mu.Lock()
	defer s.unlock()
	return s.killLocked(op, f, err)
}

// andNotCommitted adds to err what is certain of an abort.
func (s *Session) andNotCommitted(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		with := *e
		with.facts |= isNotCommitted
		return &with
	}
	return err
}

// unsure reports whether something else than the refused request may have
// ended the transaction, or whether the answer may be a stale one.
func (t *transaction) unsure(res transport.Result) bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.openEnd || res.Attempts > 1
}

// open reports whether an end of t has no answer that decides.
func (t *transaction) open() bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.openEnd
}

// prepared reports whether t may have been ended by another process.
func (t *transaction) prepared() bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.wasPrepared
}

// hasWitness reports whether a record of t is known.
func (t *transaction) hasWitness() bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.witness.Topic != "" || t.from.Witness.Topic != ""
}

// checkResumed finds out, before a resumed session sends an end, which rules
// apply and whether the end can hit another transaction than the one meant.
// done is true if no end must be sent, with or without an error.
func (s *Session) checkResumed(ctx context.Context, op string, t *transaction, commit bool) (done bool, err error) {
	s.mu.Lock()
	sure := t.checked
	s.mu.Unlock()
	if sure {
		return false, nil
	}
	cluster, err := s.tc.TransactionVersion(ctx, s.id, false)
	if err != nil {
		return true, s.endOpen(op, t, commit, err)
	}
	version := t.from.TransactionVersion
	if version < 0 {
		version = cluster
	}
	switch {
	case version >= 2 && cluster < 2:
		return true, s.endOpen(op, t, commit, fmt.Errorf("%w: the transaction ran under version %d, the cluster has %d", ErrTransactionVersion, version, cluster))
	case version < 2 && t.from.StartMillis != 0:
		if done, err := s.checkStart(ctx, op, t, commit); done {
			return true, err
		}
	case version < 2 && !s.cfg.resumeOldRules:
		return true, s.endOpen(op, t, commit, fmt.Errorf("%w: below 2 the epoch is the same for every transaction, and a later one could be ended instead; resume from a PreparedTxn, or use AllowResumeOldRules", ErrTransactionVersion))
	}
	s.mu.Lock()
	t.version, t.checked = version, true
	s.mu.Unlock()
	return false, nil
}

// checkAbort looks, before a prepared transaction is aborted, whether another
// process has committed it by an EndTxn of the old rules. That leaves the epoch
// as it was, and the coordinator would take the abort for one of a transaction
// without work: it would answer that it is done. done is true if no abort must
// be sent.
func (s *Session) checkAbort(ctx context.Context, op string, t *transaction) (done bool, err error) {
	out, err := s.inquire(ctx, t)
	switch {
	case err != nil:
		return true, s.endOpen(op, t, false, err)
	case out.Verdict == Committed:
		return true, s.endFound(op, t, out, errElsewhere, 0)
	}
	return false, nil
}

// checkStart compares the transaction that is open under the id with the one
// that was prepared. done is true if no end must be sent.
func (s *Session) checkStart(ctx context.Context, op string, t *transaction, commit bool) (done bool, err error) {
	st, err := s.describe(ctx)
	if err != nil {
		return true, s.endOpen(op, t, commit, err)
	}
	if st.State == "Ongoing" && st.ProducerID == t.ident.id && st.ProducerEpoch == t.ident.epoch &&
		st.StartTimestamp == t.from.StartMillis && hasPartition(st, t.from.Witness) {
		// Two transactions can have started in the same millisecond: the
		// partition's leader knows the first offset of the one that is open.
		same, err := s.witnessIsOpen(ctx, t)
		if err != nil {
			return true, s.endOpen(op, t, commit, err)
		}
		if same {
			return false, nil
		}
		st.State = "" // it says nothing about the prepared one
	}
	out := s.interpret(t, st)
	if out.Verdict == Unknown {
		if m, err := s.findMarker(ctx, t); err == nil {
			out = m
		}
	}
	other := fmt.Errorf("%w: the transaction that is open under the id is another than the prepared one", ErrTransactionVersion)
	switch {
	case out.Verdict == Committed && commit, out.Verdict == Aborted && !commit:
		return true, s.endFound(op, t, out, nil, 0)
	case out.Verdict == Aborted:
		return true, s.endFound(op, t, out, errors.New("the transaction was aborted before"), isNotCommitted)
	case out.Verdict == Committed:
		return true, s.endFound(op, t, out, errElsewhere, 0)
	}
	// It is not open any more, so it has an outcome; nobody can tell which.
	return true, s.fail(op, isUnknown|isNeverSent, false, other)
}

// witnessIsOpen reports whether the witness belongs to the transaction that is
// open in its partition. Where that cannot be asked (no witness, no READ on the
// topic, an old broker) it goes by what the coordinator said.
func (s *Session) witnessIsOpen(ctx context.Context, t *transaction) (bool, error) {
	w := t.from.Witness
	if w.Topic == "" {
		return true, nil
	}
	info, err := s.tc.Topic(ctx, w.Topic)
	if err != nil {
		return false, err
	}
	known := info.Err == nil && int(w.Partition) < len(info.Partitions) && w.Partition >= 0
	if !known {
		return true, nil // the topic is gone, or nobody may see it
	}
	res := s.tc.Lookup().Do(ctx, transport.Call{
		Target: transport.Node(info.Partitions[w.Partition].Leader),
		New: func() kmsg.Request {
			req := kmsg.NewPtrDescribeProducersRequest()
			rt := kmsg.NewDescribeProducersRequestTopic()
			rt.Topic, rt.Partitions = w.Topic, []int32{w.Partition}
			req.Topics = append(req.Topics, rt)
			return req
		},
		Code: func(r kmsg.Response) (int16, string) {
			for _, rt := range r.(*kmsg.DescribeProducersResponse).Topics {
				for _, rp := range rt.Partitions {
					return rp.ErrorCode, ""
				}
			}
			return 0, ""
		},
		Give: func(r transport.Result) bool { return r.Class == transport.ClassRefresh },
	})
	switch res.Class {
	case transport.ClassNone:
	case transport.ClassDenied, transport.ClassUnsupported:
		return true, nil
	default:
		s.tc.RefreshTopics(w.Topic)
		return false, res.Err
	}
	for _, rt := range res.Resp.(*kmsg.DescribeProducersResponse).Topics {
		for _, rp := range rt.Partitions {
			for _, p := range rp.ActiveProducers {
				if p.ProducerID == t.ident.id {
					return p.CurrentTxnStartOffset >= 0 && p.CurrentTxnStartOffset <= w.Offset, nil
				}
			}
		}
	}
	return false, nil
}

func hasPartition(st kmsg.DescribeTransactionsResponseTransactionState, w Witness) bool {
	if w.Topic == "" {
		return true
	}
	for _, topic := range st.Topics {
		if topic.Topic == w.Topic && slices.Contains(topic.Partitions, w.Partition) {
			return true
		}
	}
	return false
}
