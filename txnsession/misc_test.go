package txnsession_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/statemachine"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/txnsession"
)

func TestOptionsAreChecked(t *testing.T) {
	k := newKit(t)
	for name, opts := range map[string][]txnsession.Opt{
		"2PC and session timeout":     {txnsession.TwoPhaseCommit(), txnsession.TransactionSessionTimeout(time.Second)},
		"2PC and transaction timeout": {txnsession.TwoPhaseCommit(), txnsession.TransactionTimeout(time.Minute)},
		"heartbeat without timeout":   {txnsession.RequireHeartbeat()},
		"negative":                    {txnsession.TransactionTimeout(-1)},
		"zero":                        {txnsession.TransactionTimeout(0)},
		"below a millisecond":         {txnsession.TransactionTimeout(time.Microsecond)},
		"over 31 bits":                {txnsession.TransactionSessionTimeout(1e6 * time.Hour)},
		"nil":                         {nil},
	} {
		_, err := txnsession.New(k.nc, "id", opts...)
		require.Error(t, err, name)
		require.True(t, txnsession.NeverSent(err), name)
	}
	_, err := txnsession.New(nil, "id")
	require.Error(t, err)
	_, err = txnsession.New(k.nc, strings.Repeat("x", 16383))
	require.Error(t, err)
	_, err = txnsession.Resume(k.nc, "id", -1, 0)
	require.Error(t, err)
	s, err := txnsession.New(k.nc, "id", txnsession.TransactionTimeout(time.Second), txnsession.TransactionTimeout(7*time.Second))
	require.NoError(t, err)
	require.NoError(t, s.Initialize(k.ctx(10*time.Second)))
	for _, r := range k.net.Log() {
		if r.Key == int16(kmsg.InitProducerID) {
			req, err := r.Decode()
			require.NoError(t, err)
			require.Equal(t, int32(7000), req.(*kmsg.InitProducerIDRequest).TransactionTimeoutMillis, "the last option wins")
		}
	}
	require.Same(t, k.nc, s.Client())
	require.Equal(t, "id", s.TransactionalID())
	require.NoError(t, s.Close(k.ctx(time.Second)))
}

// states of the public type and of the table are the same numbers.
func TestStatesAreThoseOfTheTable(t *testing.T) {
	for i, s := range []txnsession.State{
		txnsession.StateUninitialized, txnsession.StateInitializing, txnsession.StateReady, txnsession.StateInTransaction,
		txnsession.StatePrepared, txnsession.StateCommitting, txnsession.StateAborting, txnsession.StateAbortableError,
		txnsession.StateFatalError, txnsession.StateClosed,
	} {
		require.Equal(t, statemachine.State(i), statemachine.State(s))
		require.Equal(t, statemachine.State(i).String(), s.String())
	}
	require.Len(t, statemachine.States(), 10)
}

// recorder keeps what the hooks tell.
type recorder struct {
	mu      sync.Mutex
	changes []txnsession.StateChange
	ends    []txnsession.Verdict
}

func (r *recorder) OnStateChange(c txnsession.StateChange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c)
}

func (r *recorder) OnTxnEnd(id string, v txnsession.Verdict, age time.Duration, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id == "id" && age > 0 {
		r.ends = append(r.ends, v)
	}
}

func TestHooks(t *testing.T) {
	k := newKit(t)
	rec := new(recorder)
	k.nc = k.client(netclient.WithHooks(rec))
	s, w := k.open("id", "r")
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.NoError(t, w.write(0, "x"))
	w.txn.Fail(kerr.OutOfOrderSequenceNumber)
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
	require.NoError(t, s.Close(k.ctx(time.Second)))
	rec.mu.Lock()
	defer rec.mu.Unlock()
	var path []string
	for i, c := range rec.changes {
		require.Equal(t, "id", c.TransactionalID)
		if i > 0 {
			require.Equal(t, rec.changes[i-1].To, c.From, "in order, without a gap")
		}
		require.Equal(t, c.To == txnsession.StateAbortableError, c.Err != nil, "%+v", c)
		path = append(path, c.To.String())
	}
	require.Equal(t, []string{
		"initializing", "ready", "in_transaction", "committing", "ready",
		"in_transaction", "abortable_error", "aborting", "ready", "closed",
	}, path)
	require.Equal(t, []txnsession.Verdict{txnsession.Committed, txnsession.Aborted}, rec.ends)
}

func TestErrorSaysWhatToDo(t *testing.T) {
	k := newKit(t)
	s := k.session("id")
	err := s.Begin(k.ctx(time.Second))
	var e *txnsession.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "begin", e.Op)
	require.Equal(t, txnsession.StateUninitialized, e.State)
	require.Equal(t, []string{"Initialize", "InitializeKeepPrepared", "Outcome", "Close"}, e.Allowed)
	require.ErrorContains(t, err, "uninitialized")
	require.ErrorContains(t, err, "Initialize")

	require.False(t, txnsession.IsNotCommitted(nil))
	plain := errors.New("x")
	for _, is := range []func(error) bool{
		txnsession.IsNotCommitted, txnsession.IsOutcomeUnknown, txnsession.IsAbortable, txnsession.IsFatal, txnsession.IsFenced, txnsession.NeverSent,
	} {
		require.False(t, is(plain))
	}
	// Errors that a participant builds are classified by the code they carry.
	for code, want := range map[*kerr.Error][3]bool{ // abortable, fatal, fenced
		kerr.OutOfOrderSequenceNumber: {true, false, false},
		kerr.InvalidProducerIDMapping: {false, true, false},
		kerr.ProducerFenced:           {false, true, true},
	} {
		err := &txnsession.Error{Op: "produce", Err: code}
		require.Equal(t, want, [3]bool{txnsession.IsAbortable(err), txnsession.IsFatal(err), txnsession.IsFenced(err)}, code.Message)
	}
}

// Without a broker's code the state tells.
func TestErrorOfAnotherPackageByItsState(t *testing.T) {
	lost := func(s txnsession.State) error {
		return &txnsession.Error{Op: "produce", State: s, Err: kgo.ErrRecordTimeout}
	}
	require.True(t, txnsession.IsAbortable(lost(txnsession.StateAbortableError)))
	require.True(t, txnsession.IsFatal(lost(txnsession.StateFatalError)))
	require.False(t, txnsession.IsAbortable(lost(txnsession.StateInTransaction)))
}

func TestAddPartitions(t *testing.T) {
	for _, old := range []bool{false, true} {
		k := backend{old: old}.kit(t)
		s := k.ready("id")
		parts := map[string][]int32{topic: {0, 1}}
		require.ErrorIs(t, s.AddPartitions(k.ctx(time.Second), parts), txnsession.ErrState)
		require.NoError(t, s.Begin(k.ctx(10*time.Second)))
		require.NoError(t, s.AddPartitions(k.ctx(10*time.Second), parts))
		require.NoError(t, s.AddPartitions(k.ctx(10*time.Second), parts), "known already")
		want := 0
		if old {
			want = 1
		}
		require.Equal(t, want, k.requests(kmsg.AddPartitionsToTxn))
		require.NoError(t, s.Abort(k.ctx(10*time.Second)))
		require.Equal(t, 1, k.requests(kmsg.EndTxn), "an end is sent for it")
		if !old {
			continue
		}
		require.NoError(t, s.Begin(k.ctx(10*time.Second)))
		held := k.inject(kmsg.AddPartitionsToTxn, faultnet.Delay, 1, 0)
		err := s.AddPartitions(k.ctx(50*time.Millisecond), parts)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, txnsession.StateInTransaction, s.State())
		held.Release()
		require.NoError(t, s.AddPartitions(k.ctx(10*time.Second), parts), "repeated")
		require.NoError(t, s.Abort(k.ctx(10*time.Second)))
		require.NoError(t, s.Begin(k.ctx(10*time.Second)))
		k.inject(kmsg.AddPartitionsToTxn, faultnet.Answer, 1, kerr.UnknownTopicOrPartition.Code)
		k.inject(kmsg.AddPartitionsToTxn, faultnet.Answer, 1, kerr.TopicAuthorizationFailed.Code)
		err = s.AddPartitions(k.ctx(10*time.Second), parts)
		require.True(t, txnsession.IsAbortable(err), err)
	}
}

// An end without an answer under old rules moves the epoch before the next
// transaction: a copy that is still under way would commit it.
func TestOldRulesMoveTheEpochAfterAnOpenQuestion(t *testing.T) {
	k := backend{old: true}.kit(t)
	s, w := k.open("id", "a")
	epoch := s.ProducerEpoch()
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.Equal(t, epoch, s.ProducerEpoch())
	require.NoError(t, w.write(0, "b"))
	cut := k.inject(kmsg.EndTxn, faultnet.CutAfter, 1, 0)
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	require.Equal(t, 1, cut.Hits())
	inits := k.requests(kmsg.InitProducerID)
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.Equal(t, epoch+1, s.ProducerEpoch())
	require.Equal(t, 1, k.requests(kmsg.InitProducerID)-inits)
	require.NoError(t, w.write(0, "c"))
	w.txn.Fail(&txnsession.Error{Op: "produce", MaybeSent: true, Err: kgo.ErrRecordTimeout})
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.Equal(t, epoch+2, s.ProducerEpoch(), "a Produce without an answer could land after the marker")
	require.NoError(t, w.write(0, "d"))
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	require.Equal(t, []string{"a", "b", "d"}, k.committed(0))
}

// Initialize, while a commit is unresolved that did happen, says so.
func TestInitializeFindsTheCommit(t *testing.T) {
	for _, by := range []string{"describe", "marker"} {
		k := newKit(t)
		s, _ := k.open("id", "r")
		k.inject(kmsg.EndTxn, faultnet.AnswerAfter, 1, kerr.UnknownServerError.Code)
		k.inject(kmsg.EndTxn, faultnet.CutBefore, forever, 0)
		require.True(t, txnsession.IsOutcomeUnknown(s.Commit(k.ctx(200*time.Millisecond))))
		if by == "describe" {
			k.state("id", "CompleteCommit", s.ProducerID(), s.ProducerEpoch()+1)
		}
		require.NoError(t, s.Initialize(k.ctx(10*time.Second)))
		out, err := s.Outcome(k.ctx(time.Second))
		require.NoError(t, err)
		require.Equal(t, txnsession.Committed, out.Verdict)
		require.Equal(t, by, out.Evidence.Source)
		require.Equal(t, txnsession.StateReady, s.State())
		require.Equal(t, []string{"r"}, k.committed(0))
	}
	// While the question cannot be asked the session stays where it is.
	k := newKit(t)
	s, _ := k.open("id", "r")
	k.inject(kmsg.EndTxn, faultnet.CutBefore, forever, 0)
	require.Error(t, s.Commit(k.ctx(100*time.Millisecond)))
	k.inject(kmsg.DescribeTransactions, faultnet.CutBefore, forever, 0)
	err := s.Initialize(k.ctx(100 * time.Millisecond))
	require.True(t, txnsession.IsOutcomeUnknown(err), err)
	require.Equal(t, txnsession.StateCommitting, s.State())
}

func TestOwnConnection(t *testing.T) {
	k := newKit(t)
	shared := k.ready("shared")
	own := k.ready("own", txnsession.OwnConnection())
	conns := make(map[uint64]map[string]bool)
	for _, r := range k.net.Log() {
		if r.Key == int16(kmsg.InitProducerID) {
			req, err := r.Decode()
			require.NoError(t, err)
			if conns[r.Conn] == nil {
				conns[r.Conn] = make(map[string]bool)
			}
			conns[r.Conn][*req.(*kmsg.InitProducerIDRequest).TransactionalID] = true
		}
	}
	require.Len(t, conns, 2)
	require.NoError(t, own.Close(k.ctx(time.Second)))
	require.NoError(t, shared.Begin(k.ctx(time.Second)))
}

// A session on a closed netclient ends as after a lost connection.
func TestClosedNetclient(t *testing.T) {
	k := newKit(t)
	s, _ := k.open("id", "r")
	k.nc.Close()
	err := s.Commit(k.ctx(5 * time.Second))
	require.Error(t, err)
	require.False(t, txnsession.IsNotCommitted(err), err)
	require.NotEqual(t, txnsession.StateReady, s.State())
	_ = s.Close(k.ctx(time.Second))
}
