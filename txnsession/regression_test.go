package txnsession_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/txnsession"
)

// An Initialize that gives up over an unresolved commit does not make the next one
// claim that it was aborted.
func TestInitializeThatGaveUpForgetsNothing(t *testing.T) {
	each(t, testInitializeThatGaveUpForgetsNothing)
}
func testInitializeThatGaveUpForgetsNothing(t *testing.T, b backend) {
	k := b.kit(t)
	s, _ := k.open("id", "r")
	cut := k.inject(kmsg.EndTxn, faultnet.CutAfter, forever, 0)
	err := s.Commit(k.ctx(500 * time.Millisecond))
	require.True(t, txnsession.IsOutcomeUnknown(err), err)
	cut.Remove()
	busy := k.inject(kmsg.InitProducerID, faultnet.Answer, forever, kerr.CoordinatorLoadInProgress.Code)
	require.Error(t, s.Initialize(k.ctx(500*time.Millisecond)))
	busy.Remove()
	require.NoError(t, s.Initialize(k.ctx(10*time.Second)))
	out, err := s.Outcome(k.ctx(10 * time.Second))
	require.NoError(t, err)
	if len(k.committed(0)) > 0 && out.Verdict == txnsession.Aborted {
		t.Error("Outcome says Aborted of a transaction whose record is visible")
	}
}

// The coordinator shows an abort at the next epoch: after a commit whose answer was
// lost that is another owner's, and neither proof of ours nor leave to go on.
func TestAnotherOwnersAbortIsNotOurTimeout(t *testing.T) {
	each(t, testAnotherOwnersAbortIsNotOurTimeout)
}
func testAnotherOwnersAbortIsNotOurTimeout(t *testing.T, b backend) {
	k := b.kit(t)
	a, _ := k.open("id", "a")
	cut := k.inject(kmsg.EndTxn, faultnet.CutAfter, forever, 0)
	err := a.Commit(k.ctx(500 * time.Millisecond))
	require.True(t, txnsession.IsOutcomeUnknown(err), err)
	cut.Remove()

	o, err := txnsession.New(k.client(), k.id("id"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = o.Close(k.ctx(time.Second)) })
	require.NoError(t, o.Initialize(k.ctx(10*time.Second)))
	require.NoError(t, o.Begin(k.ctx(10*time.Second)))
	ow := k.writer(o)
	require.NoError(t, ow.write(1, "owner's"))
	require.NoError(t, o.Abort(k.ctx(10*time.Second)))
	if b.real == nil && b.old {
		k.state("id", "CompleteAbort", o.ProducerID(), o.ProducerEpoch()) // as a broker has it
	}

	err = a.Commit(k.ctx(10 * time.Second))
	if txnsession.IsNotCommitted(err) && len(k.committed(0)) > 0 {
		t.Error("IsNotCommitted, but the record is visible")
	}
	require.Error(t, a.Abort(k.ctx(10*time.Second)))
	err = o.Begin(k.ctx(10 * time.Second))
	if err == nil {
		if err = ow.write(1, "owner's 2"); err == nil {
			err = o.Commit(k.ctx(10 * time.Second))
		}
	}
	require.NoError(t, err, "the rightful owner was fenced by the zombie")
}

// A participant that learns of a fence while it is dropped ends the session: nothing
// more is sent (invariant 5).
func TestFencedInDiscardSendsNoEnd(t *testing.T) {
	k := newKit(t)
	s, w := k.open("id", "r")
	w.discard = func(context.Context) error {
		w.txn.Fail(&txnsession.Error{Op: "produce", Err: kerr.ProducerFenced})
		return nil
	}
	require.True(t, txnsession.IsFenced(s.Abort(k.ctx(5*time.Second))))
	require.Equal(t, txnsession.StateFatalError, s.State())
	require.Zero(t, k.requests(kmsg.EndTxn), "a fenced session sent EndTxn")
}

func TestFencedInDiscardSendsNoInit(t *testing.T) {
	k := newKit(t)
	s, w := k.open("id", "r")
	w.txn.Fail(&txnsession.Error{Op: "produce", Err: kerr.OutOfOrderSequenceNumber})
	w.discard = func(context.Context) error {
		w.txn.Fail(&txnsession.Error{Op: "produce", Err: kerr.ProducerFenced})
		return nil
	}
	n := k.requests(kmsg.InitProducerID)
	err := s.Initialize(k.ctx(5 * time.Second))
	require.Equal(t, txnsession.StateFatalError, s.State())
	require.Error(t, err, "Initialize returns nil on a fenced session")
	require.Equal(t, n, k.requests(kmsg.InitProducerID), "a fenced session sent InitProducerId")
}

// Close beside a commit that is on the wire knows nothing of the outcome.
func TestCloseClaimsNothingOfAWrittenCommit(t *testing.T) {
	k := newKit(t)
	s, w := k.open("id", "r")
	held := k.inject(kmsg.EndTxn, faultnet.Delay, 1, 0)
	done := make(chan error, 1)
	go func() { done <- s.Commit(context.Background()) }()
	require.NoError(t, held.WaitHits(k.ctx(5*time.Second), 1))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Close(ctx)
	held.Release()
	require.Error(t, <-done)
	require.Equal(t, []txnsession.Verdict{txnsession.Unknown}, w.settled)
	out, err := s.Outcome(k.ctx(10 * time.Second))
	require.NoError(t, err)
	require.NotEqual(t, txnsession.Aborted, out.Verdict, "the record is visible: %v", k.committed(0))
}

// Close ends by its context although a participant ignores its own.
func TestCloseIsBoundedThoughDiscardIsNot(t *testing.T) {
	k := newKit(t)
	s, w := k.open("id", "r")
	release := make(chan struct{})
	w.discard = func(context.Context) error { <-release; return nil }
	done := make(chan error, 1)
	go func() { done <- s.Close(k.ctx(500 * time.Millisecond)) }()
	select {
	case err := <-done:
		require.Error(t, err)
	case <-time.After(12 * time.Second):
		t.Error("Close hangs on a Discard that ignores its context")
	}
	close(release)
}

// Offsets that a participant has begun to send are never left out of a commit.
func TestCommitWaitsForTxnSendOffsets(t *testing.T) {
	k := newKit(t)
	s, w := k.open("id", "r")
	cut := k.inject(kmsg.TxnOffsetCommit, faultnet.Answer, forever, kerr.CoordinatorLoadInProgress.Code)
	done := make(chan error, 1)
	go func() {
		done <- w.txn.SendOffsets(context.Background(), map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 7}}}, txnsession.Unfenced("g"))
	}()
	require.NoError(t, cut.WaitHits(k.ctx(5*time.Second), 1))
	err := s.Commit(k.ctx(2 * time.Second))
	if err != nil {
		_ = s.Abort(k.ctx(5 * time.Second))
	}
	serr := <-done
	if err == nil && serr != nil {
		t.Error("Commit is nil although a SendOffsets of the transaction was under way and failed")
	}
}

func TestCommitWaitsForOffsetsBegunInFlush(t *testing.T) {
	k := newKit(t)
	s, _ := k.open("id", "r")
	cut := k.inject(kmsg.TxnOffsetCommit, faultnet.Answer, forever, kerr.CoordinatorLoadInProgress.Code)
	done := make(chan error, 1)
	p := k.writer(s)
	p.flush = func(ctx context.Context) error {
		go func() {
			done <- s.SendOffsets(ctx, map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 7}}}, txnsession.Unfenced("g"))
		}()
		return cut.WaitHits(ctx, 1)
	}
	_, err := s.Enlist(p, txnsession.PhaseWork)
	require.NoError(t, err)
	err = s.Commit(k.ctx(2 * time.Second))
	if err != nil {
		_ = s.Abort(k.ctx(5 * time.Second))
	}
	serr := <-done
	if err == nil && serr != nil {
		t.Error("Commit is nil although a SendOffsets of the transaction was under way and failed")
	}
}

// A Flush that fails while the context ends has failed, and was not cut short.
func TestFlushErrorBesideAnEndedContext(t *testing.T) {
	k := newKit(t)
	s, w := k.open("id", "r")
	ctx, cancel := context.WithCancel(context.Background())
	first := true
	w.flush = func(context.Context) error {
		if first {
			first = false
			cancel()
			return errors.New("a record is lost for good")
		}
		return nil
	}
	require.Error(t, s.Commit(ctx))
	err := s.Commit(k.ctx(5 * time.Second))
	require.Error(t, err, "committed although a participant's flush had failed")
}

type valueParticipant [1]func()

func (valueParticipant) Flush(context.Context) error   { return nil }
func (valueParticipant) Discard(context.Context) error { return nil }
func (valueParticipant) Settle(txnsession.Verdict)     {}

// A participant whose type cannot be compared is refused.
func TestEnlistRefusesUncomparable(t *testing.T) {
	k := newKit(t)
	s := k.ready("id")
	require.NoError(t, s.Begin(k.ctx(time.Second)))
	require.NotPanics(t, func() {
		_, _ = s.Enlist(valueParticipant{}, 0)
		_, _ = s.Enlist(valueParticipant{}, 0)
	})
}

// ErrOutcomeLost is final: a search that its context cut short does not say it.
func TestOutcomeIsNotLostByAContext(t *testing.T) {
	k := newKit(t)
	_, p := k.prepared("id", "r")
	k.inject(kmsg.EndTxn, faultnet.AnswerAfter, forever, kerr.InvalidProducerIDMapping.Code) // applied by somebody
	held := k.inject(kmsg.Fetch, faultnet.Delay, 1, 0)
	r := k.resume(p)
	err := r.Commit(k.ctx(500 * time.Millisecond))
	held.Release()
	if errors.Is(err, txnsession.ErrOutcomeLost) {
		r2 := k.resume(p)
		err2 := r2.Commit(k.ctx(5 * time.Second))
		t.Error("ErrOutcomeLost ('no further try can find out'), but another try gives:", err2, len(k.committed(0)))
	}
}

// Fenced for good only if somebody said so: a question that was cut short did not.
func TestFencedNeedsAnAnswer(t *testing.T) {
	for _, end := range []string{"commit", "abort"} {
		k := backend{old: true}.kit(t)
		s, _ := k.open("id", "r")
		// A timeout: EndTxn answers 90, the coordinator has CompleteAbort at e+1.
		k.inject(kmsg.EndTxn, faultnet.Answer, forever, kerr.ProducerFenced.Code)
		held := k.inject(kmsg.DescribeTransactions, faultnet.Delay, 1, 0)
		var err error
		if end == "commit" {
			err = s.Commit(k.ctx(500 * time.Millisecond))
		} else {
			err = s.Abort(k.ctx(500 * time.Millisecond))
		}
		held.Remove()
		if txnsession.IsFenced(err) {
			t.Error("fenced for good, although the question who ended it was only cut short")
		}
	}
}

// What only an abort was ever sent for is aborted.
func TestInitializeOverAnUnresolvedAbort(t *testing.T) {
	k := newKit(t)
	s := k.ready("id")
	require.NoError(t, s.Begin(k.ctx(time.Second)))
	require.NoError(t, s.SendOffsets(k.ctx(5*time.Second), map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 7}}}, txnsession.Unfenced("g")))
	cut := k.inject(kmsg.EndTxn, faultnet.CutBefore, forever, 0)
	err := s.Abort(k.ctx(300 * time.Millisecond))
	require.True(t, txnsession.IsNotCommitted(err), err)
	cut.Remove()
	require.NoError(t, s.Initialize(k.ctx(5*time.Second)))
	out, err := s.Outcome(k.ctx(time.Second))
	require.NoError(t, err)
	require.Equal(t, txnsession.Aborted, out.Verdict, "%+v", out)
}

// B39: a coordinator that has just lost its partition answers from memory; after a
// commit without an answer its refusal proves nothing.
func TestStaleCoordinatorProvesNothing(t *testing.T) {
	k := newKit(t)
	s := k.ready("id")
	require.NoError(t, s.Begin(k.ctx(time.Second)))
	require.NoError(t, s.SendOffsets(k.ctx(5*time.Second), map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 7}}}, txnsession.Unfenced("g")))
	id, epoch := s.ProducerID(), s.ProducerEpoch()
	k.inject(kmsg.EndTxn, faultnet.CutAfter, 1, 0)
	k.inject(kmsg.EndTxn, faultnet.Answer, 1, kerr.InvalidTxnState.Code) // from the old coordinator's cache
	k.state("id", "CompleteCommit", id, epoch)                           // so has that before the transaction
	err := s.Commit(k.ctx(5 * time.Second))
	if txnsession.IsNotCommitted(err) {
		t.Error("IsNotCommitted after an unanswered commit that was applied")
	}
}
