package txnsession_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/txnsession"
)

func (k *kit) inject(key kmsg.Key, a faultnet.Action, times int, code int16) *faultnet.Injection {
	return k.net.Inject(faultnet.Fault{Key: int16(key), Node: faultnet.Any, Action: a, Times: times, Code: code})
}

const forever = faultnet.Forever

// B01: a commit that ended without a confirmed outcome keeps the session in
// COMMITTING; nothing of the next transaction can commit its records.
func TestB01_UnconfirmedCommit(t *testing.T) { each(t, testB01_UnconfirmedCommit) }

func testB01_UnconfirmedCommit(t *testing.T, b backend) {
	for _, how := range []string{"commit again", "initialize"} {
		t.Run(how, func(t *testing.T) {
			k := b.kit(t)
			s, w := k.open("id", "r1")
			cut := k.inject(kmsg.EndTxn, faultnet.CutBefore, forever, 0)
			err := s.Commit(k.ctx(300 * time.Millisecond))
			require.True(t, txnsession.IsOutcomeUnknown(err), err)
			require.False(t, txnsession.IsNotCommitted(err), err)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, txnsession.StateCommitting, s.State())
			require.Error(t, s.Err())
			require.Positive(t, cut.Hits())
			cut.Remove()

			ends := k.requests(kmsg.EndTxn)
			for name, call := range map[string]func() error{
				"begin":   func() error { return s.Begin(k.ctx(time.Second)) },
				"abort":   func() error { return s.Abort(k.ctx(time.Second)) },
				"produce": func() error { return w.write(0, "r2") },
			} {
				require.ErrorIs(t, call(), txnsession.ErrState, name)
			}
			require.Equal(t, ends, k.requests(kmsg.EndTxn), "a refused call must send nothing")

			if how == "commit again" {
				require.NoError(t, s.Commit(k.ctx(10*time.Second)))
				require.Equal(t, []string{"r1"}, k.committed(0))
			} else {
				epoch := s.ProducerEpoch()
				require.NoError(t, s.Initialize(k.ctx(10*time.Second)))
				require.Greater(t, s.ProducerEpoch(), epoch)
				out, err := s.Outcome(k.ctx(10 * time.Second))
				require.NoError(t, err)
				require.Equal(t, txnsession.Aborted, out.Verdict, "%+v", out)
				require.Empty(t, k.committed(0))
			}
			require.Equal(t, txnsession.StateReady, s.State())
			require.NoError(t, s.Begin(k.ctx(10*time.Second)))
			require.NoError(t, w.write(0, "r2"))
			require.NoError(t, s.Commit(k.ctx(10*time.Second)))
			if how == "initialize" {
				require.Equal(t, []string{"r2"}, k.committed(0), "r1 must not be committed by r2's commit")
			}
		})
	}
}

// B02: an answer that says nothing is no success, and a commit that was
// refused before it was sent leaves the abort its EndTxn.
func TestB02_CommitThatSaysNothing(t *testing.T) { each(t, testB02_CommitThatSaysNothing) }

func testB02_CommitThatSaysNothing(t *testing.T, b backend) {
	t.Run("UNKNOWN_SERVER_ERROR for ever", func(t *testing.T) {
		k := b.kit(t)
		s, _ := k.open("id", "r")
		k.inject(kmsg.EndTxn, faultnet.Answer, forever, -1)
		err := s.Commit(k.ctx(300 * time.Millisecond))
		require.True(t, txnsession.IsOutcomeUnknown(err), err)
		require.ErrorIs(t, err, kerr.UnknownServerError)
		require.Empty(t, k.committed(0))
	})
	t.Run("refused before sending", func(t *testing.T) {
		k := b.kit(t)
		s, w := k.open("id", "r")
		w.txn.Fail(&txnsession.Error{Op: "produce", Err: kerr.OutOfOrderSequenceNumber})
		err := s.Commit(k.ctx(10 * time.Second))
		require.True(t, txnsession.IsNotCommitted(err) && txnsession.IsAbortable(err), err)
		require.ErrorIs(t, err, kerr.OutOfOrderSequenceNumber)
		require.Zero(t, k.requests(kmsg.EndTxn))
		require.NoError(t, s.Abort(k.ctx(10*time.Second)))
		require.Equal(t, 1, k.requests(kmsg.EndTxn))
		require.NotEqual(t, "Ongoing", k.describe("id").State)
	})
}

// B03: a commit whose answer is lost was committed: the transport's variant
// ends as a success, the cancelled one says that it is unknown.
func TestB03_LostAnswer(t *testing.T) { each(t, testB03_LostAnswer) }

func testB03_LostAnswer(t *testing.T, b backend) {
	t.Run("connection lost", func(t *testing.T) {
		k := b.kit(t)
		s, _ := k.open("id", "r")
		epoch := s.ProducerEpoch()
		cut := k.inject(kmsg.EndTxn, faultnet.CutAfter, 1, 0)
		require.NoError(t, s.Commit(k.ctx(10*time.Second)))
		require.Equal(t, 1, cut.Hits())
		require.Equal(t, k.next(epoch), s.ProducerEpoch())
		require.Equal(t, []string{"r"}, k.committed(0))
	})
	t.Run("context ends", func(t *testing.T) {
		k := b.kit(t)
		s, _ := k.open("id", "r")
		epoch := s.ProducerEpoch()
		held := k.inject(kmsg.EndTxn, faultnet.Delay, 1, 0)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			assert.Eventually(t, func() bool { return held.Hits() > 0 }, 10*time.Second, time.Millisecond, "EndTxn was never sent")
			cancel()
		}()
		err := s.Commit(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, txnsession.IsOutcomeUnknown(err), err)
		var e *txnsession.Error
		require.ErrorAs(t, err, &e)
		require.True(t, e.MaybeSent)
		require.Equal(t, txnsession.StateCommitting, s.State())
		held.Release()
		require.NoError(t, s.Commit(k.ctx(10*time.Second)))
		require.Equal(t, k.next(epoch), s.ProducerEpoch())
		require.Equal(t, []string{"r"}, k.committed(0))
	})
}

// B05: a failure before the commit, or in the commit's own flush, is not
// overwritten by Commit or Prepare.
func TestB05_FailureBeforeTheEnd(t *testing.T) { each(t, testB05_FailureBeforeTheEnd) }

func testB05_FailureBeforeTheEnd(t *testing.T, b backend) {
	boom := errors.New("boom")
	for _, op := range []string{"commit", "prepare"} {
		for _, when := range []string{"before", "in flush", "reported in flush"} {
			t.Run(op+" "+when, func(t *testing.T) {
				k := b.kit(t)
				s, w := k.open("id", "r")
				switch when {
				case "before":
					w.txn.Fail(boom)
				case "in flush":
					w.flush = func(context.Context) error { return boom }
				default:
					w.flush = func(context.Context) error { w.txn.Fail(boom); return nil }
				}
				var err error
				if op == "commit" {
					err = s.Commit(k.ctx(10 * time.Second))
				} else {
					_, err = s.Prepare(k.ctx(10 * time.Second))
				}
				require.ErrorIs(t, err, boom)
				require.True(t, txnsession.IsNotCommitted(err) && txnsession.IsAbortable(err), err)
				require.Equal(t, txnsession.StateAbortableError, s.State())
				require.Zero(t, k.requests(kmsg.EndTxn))
				require.NoError(t, s.Abort(k.ctx(10*time.Second)))
				require.Equal(t, txnsession.StateReady, s.State())
				require.Empty(t, k.committed(0))
			})
		}
	}
}

// B06: a commit that comes after the coordinator's timeout is not committed,
// with either code that brokers answer, and the same session goes on.
func TestB06_CommitAfterTimeout(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.InvalidTxnState, kerr.ProducerFenced, kerr.InvalidProducerEpoch} {
		for _, how := range []string{"abort", "initialize"} {
			t.Run(code.Message+" "+how, func(t *testing.T) {
				k := newKit(t)
				s, w := k.open("id", "r")
				// The coordinator has aborted and bumped the epoch.
				end := kmsg.NewPtrEndTxnRequest()
				end.TransactionalID, end.ProducerID, end.ProducerEpoch = "id", s.ProducerID(), s.ProducerEpoch()
				resp, err := end.RequestWith(k.ctx(10*time.Second), k.raw)
				require.NoError(t, err)
				require.Zero(t, resp.ErrorCode)
				k.state("id", "CompleteAbort", s.ProducerID(), s.ProducerEpoch()+1)

				k.inject(kmsg.EndTxn, faultnet.Answer, 1, code.Code)
				err = s.Commit(k.ctx(10 * time.Second))
				require.True(t, txnsession.IsNotCommitted(err) && txnsession.IsAbortable(err), err)
				require.False(t, txnsession.IsFatal(err), err)
				require.ErrorIs(t, err, code)
				require.Equal(t, txnsession.StateAbortableError, s.State())
				require.Empty(t, k.committed(0))
				if how == "abort" {
					require.NoError(t, s.Abort(k.ctx(10*time.Second)))
				} else {
					require.NoError(t, s.Initialize(k.ctx(10*time.Second)))
				}
				require.NoError(t, s.Begin(k.ctx(10*time.Second)))
				require.NoError(t, w.write(0, "next"))
				require.NoError(t, s.Commit(k.ctx(10*time.Second)))
				require.Equal(t, []string{"next"}, k.committed(0))
			})
		}
	}
}

// state makes DescribeTransactions answer what a real coordinator would; kfake
// knows only Empty and Ongoing.
func (k *kit) state(id, state string, pid int64, epoch int16) *faultnet.Injection {
	return k.net.Inject(faultnet.Fault{
		Key: int16(kmsg.DescribeTransactions), Node: faultnet.Any, Times: forever, Action: faultnet.Rewrite,
		Edit: func(_ kmsg.Request, r kmsg.Response) {
			for i := range r.(*kmsg.DescribeTransactionsResponse).TransactionStates {
				st := &r.(*kmsg.DescribeTransactionsResponse).TransactionStates[i]
				if st.TransactionalID == k.id(id) {
					st.ErrorCode, st.State, st.ProducerID, st.ProducerEpoch = 0, state, pid, epoch
				}
			}
		},
	})
}

// B07: a commit that timed out locally is not followed by an abort, and its
// late answer meets no other state.
func TestB07_LateAnswer(t *testing.T) { each(t, testB07_LateAnswer) }

func testB07_LateAnswer(t *testing.T, b backend) {
	for _, answer := range []int16{0, kerr.InvalidTxnState.Code} {
		k := b.kit(t)
		s, _ := k.open("id", "r")
		var held *faultnet.Injection
		if answer == 0 {
			held = k.inject(kmsg.EndTxn, faultnet.Delay, 1, 0)
		} else {
			k.net.Inject(faultnet.Fault{Key: int16(kmsg.EndTxn), Node: faultnet.Any, Action: faultnet.Answer, Code: answer, Delay: time.Second, Times: 1})
		}
		err := s.Commit(k.ctx(200 * time.Millisecond))
		if answer == 0 {
			require.True(t, txnsession.IsOutcomeUnknown(err), err)
			err = s.Abort(k.ctx(time.Second))
			require.ErrorIs(t, err, txnsession.ErrState)
			require.True(t, txnsession.IsOutcomeUnknown(err), err)
			require.Equal(t, 1, k.requests(kmsg.EndTxn), "no EndTxn(abort) after an unanswered commit")
			held.Release()
			require.NoError(t, s.Commit(k.ctx(10*time.Second)))
			require.Equal(t, []string{"r"}, k.committed(0))
		}
	}
}

// B22: a transaction without data ends without a request; with data, an empty
// one right after it is not fenced.
func TestB22_EmptyTransactions(t *testing.T) { each(t, testB22_EmptyTransactions) }

func testB22_EmptyTransactions(t *testing.T, b backend) {
	k := b.kit(t)
	s := k.ready("id")
	w := k.writer(s)
	for _, end := range []string{"commit", "abort", "prepare"} {
		require.NoError(t, s.Begin(k.ctx(10*time.Second)))
		_, err := s.Enlist(w, txnsession.PhaseSend)
		require.NoError(t, err)
		switch end {
		case "commit":
			require.NoError(t, s.Commit(k.ctx(10*time.Second)))
		case "abort":
			require.NoError(t, s.Abort(k.ctx(10*time.Second)))
		case "prepare":
			p, err := s.Prepare(k.ctx(10 * time.Second))
			require.NoError(t, err)
			require.True(t, p.Empty)
			r, err := txnsession.ResumePrepared(k.client(), p)
			require.NoError(t, err)
			require.NoError(t, r.Commit(k.ctx(10*time.Second)))
			require.Equal(t, txnsession.StateClosed, r.State())
			require.NoError(t, s.Commit(k.ctx(10*time.Second)))
		}
	}
	require.Zero(t, k.requests(kmsg.EndTxn))
	require.Equal(t, []txnsession.Verdict{txnsession.Nothing, txnsession.Nothing, txnsession.Nothing}, w.settled)

	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.NoError(t, w.write(0, "r"))
	busy := k.inject(kmsg.EndTxn, faultnet.Answer, 3, kerr.ConcurrentTransactions.Code)
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	require.Equal(t, 3, busy.Hits())
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.NoError(t, s.AddPartitions(k.ctx(10*time.Second), map[string][]int32{k.topic: {0}}))
	busy = k.inject(kmsg.EndTxn, faultnet.Answer, 3, kerr.ConcurrentTransactions.Code)
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
	require.Equal(t, 3, busy.Hits())
	require.Equal(t, []string{"r"}, k.committed(0))
}
