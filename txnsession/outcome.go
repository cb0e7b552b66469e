package txnsession

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/statemachine"
)

// Verdict is how a transaction ended.
type Verdict uint8

// The verdicts.
const (
	Unknown   Verdict = iota // nothing that still exists tells
	Open                     // not ended yet
	Committed                // its records and offsets are visible
	Aborted                  // none of them ever will be
	Nothing                  // no data was ever written
)

// String returns the verdict's name, such as "committed".
func (v Verdict) String() string {
	if names := [...]string{"unknown", "open", "committed", "aborted", "nothing"}; int(v) < len(names) {
		return names[v]
	}
	return "invalid"
}

// Outcome is a verdict and what it rests on.
type Outcome struct {
	Verdict  Verdict
	Evidence Evidence
}

// Evidence tells where a verdict comes from.
type Evidence struct {
	// Source is "answer" (the coordinator answered an end), "describe"
	// (DescribeTransactions), "marker" (a transaction marker in a partition)
	// or "none".
	Source string
	// Topic, Partition and Offset are where the marker stands, or the
	// witness that was looked for.
	Topic     string
	Partition int32
	Offset    int64
	// ProducerEpoch is the epoch in the answer or marker. A marker may carry
	// a later one than the transaction's.
	ProducerEpoch int16
	// Text says it in words.
	Text string
}

var errNoState = errors.New("the coordinator's answer lacks the transactional id")

// Outcome tells how the transaction that is open, or that ended last, has
// ended. It asks only questions, so a fenced session may use it too: the
// coordinator (DescribeTransactions), while that still knows; then the first
// transaction marker of the producer id after a witness, a record that the
// transaction wrote. Without a witness, or where its record is gone, the
// verdict is Unknown and the evidence says why; that is no error.
//
// Legal in every state but StateInitializing. ctx bounds the search. It needs
// DESCRIBE on the transactional id or READ on the witness's topic.
func (s *Session) Outcome(ctx context.Context) (Outcome, error) {
	const op = "outcome"
	s.mu.Lock()
	t := s.txn
	if !s.legalLocked(statemachine.CallOutcome) {
		defer s.mu.Unlock()
		return Outcome{}, s.stateErrorLocked(op)
	}
	if t == nil {
		s.mu.Unlock()
		return Outcome{Nothing, Evidence{Source: "none", Text: "the session has had no transaction"}}, nil
	}
	known := Outcome{t.verdict, t.evidence}
	switch {
	case t.ended && t.verdict != Unknown && t.verdict != Open:
		s.mu.Unlock()
		return known, nil
	case !t.ended && !t.worked:
		s.mu.Unlock()
		return Outcome{Open, Evidence{Source: "none", ProducerEpoch: t.ident.epoch, Text: "nothing was written yet"}}, nil
	}
	s.mu.Unlock()
	out, err := s.inquire(ctx, t)
	if err != nil {
		return Outcome{}, s.fail(op, 0, false, err)
	}
	return out, nil
}

// inquire asks the coordinator, then the partitions. It fails only if ctx or
// the client ended the search.
func (s *Session) inquire(ctx context.Context, t *transaction) (Outcome, error) {
	st, err := s.describe(ctx)
	var out Outcome
	switch {
	case err == nil:
		out = s.interpret(t, st)
	case ctx.Err() != nil || !isKafkaErr(err):
		return Outcome{}, err
	default:
		out = Outcome{Unknown, Evidence{Source: "none", Text: err.Error()}}
	}
	if out.Verdict != Unknown {
		return out, nil
	}
	found, merr := s.findMarker(ctx, t)
	switch {
	case merr == nil:
		return found, nil
	case ctx.Err() != nil:
		return Outcome{}, merr
	}
	out.Evidence.Text += "; " + merr.Error()
	return out, nil
}

func isKafkaErr(err error) bool {
	var ke *kerr.Error
	return errors.As(err, &ke) || errors.Is(err, errNoState)
}

// interpret reads the coordinator's state. The epoch after an end is one
// higher from transaction.version 2 on, so that it names the transaction;
// below it stays, and only the start time does.
func (s *Session) interpret(t *transaction, st kmsg.DescribeTransactionsResponseTransactionState) Outcome {
	ev := Evidence{
		Source: "describe", ProducerEpoch: st.ProducerEpoch,
		Text: fmt.Sprintf("the coordinator has %s for producer id %d, epoch %d", st.State, st.ProducerID, st.ProducerEpoch),
	}
	unknown := ev
	unknown.Source = "none"
	id := t.ident
	same := st.ProducerID == id.id
	next := same && st.ProducerEpoch == id.epoch+1 ||
		!same && st.ProducerEpoch == 0 && id.epoch == 32766 // KIP-890: a new producer id
	sameEpoch := same && st.ProducerEpoch == id.epoch
	// Under the old rules the coordinator's word about this epoch is about
	// this transaction if it has heard of it and of no later one.
	oldRules := !t.newRules() && sameEpoch && s.coordinatorKnows(t, st)
	// A prepared transaction may be ended by a client that keeps to the old
	// rules (Flink's committer does): that leaves the epoch as it is. If
	// nothing of it ever reached the coordinator the state is that of the
	// transaction before, and the verdict is about no data at all.
	oldRules = oldRules || t.newRules() && sameEpoch && t.prepared()
	commit := strings.HasSuffix(st.State, "Commit")
	abort := strings.HasSuffix(st.State, "Abort")
	switch {
	case st.State == "Ongoing" && sameEpoch && (t.newRules() || t.from.StartMillis == 0 || st.StartTimestamp == t.from.StartMillis):
		return Outcome{Open, ev}
	case commit && (t.newRules() && next || oldRules):
		return Outcome{Committed, ev}
	case abort && (oldRules || next && (t.newRules() || s.timeoutIsProof(t, st))):
		return Outcome{Aborted, ev}
	case st.State == "Empty" && t.newRules() && sameEpoch && t.prepared() && !t.hasWitness():
		return Outcome{Nothing, ev}
	}
	return Outcome{Unknown, unknown}
}

// coordinatorKnows reports whether an ended transaction at the same epoch is
// t, under the old rules.
func (s *Session) coordinatorKnows(t *transaction, st kmsg.DescribeTransactionsResponseTransactionState) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind.Resumed || t.wasPrepared {
		return t.from.StartMillis != 0 && st.StartTimestamp == t.from.StartMillis
	}
	return t.known
}

// timeoutIsProof reports whether, under the old rules, an abort at the next epoch
// is the coordinator's own abort of t. Another owner that found t open has moved
// the epoch twice; but one that came after t was committed has moved it once, and
// an abort of its own looks the same.
func (s *Session) timeoutIsProof(t *transaction, st kmsg.DescribeTransactionsResponseTransactionState) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind.Resumed || t.wasPrepared {
		return t.from.StartMillis != 0 && st.StartTimestamp == t.from.StartMillis
	}
	return t.known && !(t.openEnd && t.endCommit)
}
