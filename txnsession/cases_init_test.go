package txnsession_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/txnsession"
)

// retries counts what HookRetry tells, by request key.
type retries struct {
	mu sync.Mutex
	n  map[int16]int
}

func (r *retries) OnRetry(x netclient.Retry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == nil {
		r.n = make(map[int16]int)
	}
	r.n[x.Key]++
}

func (r *retries) count(key kmsg.Key) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n[int16(key)]
}

// B09: a takeover of an open transaction is answered CONCURRENT_TRANSACTIONS
// for a while; the retries are short, visible, and end with the context.
func TestB09_TakeoverIsRetried(t *testing.T) {
	k := newKit(t)
	a, _ := k.open("id", "a")
	seen := new(retries)
	other := k.client(netclient.WithHooks(seen))
	b, err := txnsession.New(other, k.id("id"))
	require.NoError(t, err)
	busy := k.inject(kmsg.InitProducerID, faultnet.Answer, 3, kerr.ConcurrentTransactions.Code)
	require.NoError(t, b.Initialize(k.ctx(10*time.Second)))
	require.Equal(t, 3, busy.Hits())
	require.Equal(t, 3, seen.count(kmsg.InitProducerID))
	require.Equal(t, txnsession.StateReady, b.State())
	require.Empty(t, k.committed(0))
	require.True(t, txnsession.IsNotCommitted(a.Commit(k.ctx(10*time.Second))))

	k.inject(kmsg.InitProducerID, faultnet.Answer, forever, kerr.ConcurrentTransactions.Code)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- b.Initialize(ctx) }()
	require.Eventually(t, func() bool { return seen.count(kmsg.InitProducerID) > 6 }, 10*time.Second, time.Millisecond, "the retries go on")
	cancel()
	select {
	case err := <-done:
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, kerr.ConcurrentTransactions)
	case <-time.After(2 * time.Second):
		t.Fatal("Initialize went on after its context had ended")
	}
	require.Equal(t, txnsession.StateUninitialized, b.State())
	require.NoError(t, b.Close(k.ctx(time.Second)))
}

// B10: the budget of an Initialize on a cluster that is not ready is the
// caller's context and not a count.
func TestB10_BudgetIsTheContext(t *testing.T) {
	for _, fault := range []struct {
		key  kmsg.Key
		code *kerr.Error
	}{
		{kmsg.FindCoordinator, kerr.CoordinatorNotAvailable},
		{kmsg.FindCoordinator, kerr.CoordinatorLoadInProgress},
		{kmsg.InitProducerID, kerr.CoordinatorLoadInProgress},
		{kmsg.InitProducerID, kerr.CoordinatorNotAvailable},
		{kmsg.InitProducerID, kerr.NotCoordinator},
	} {
		t.Run(kmsg.NameForKey(int16(fault.key))+" "+fault.code.Message, func(t *testing.T) {
			t.Parallel()
			k := newKit(t)
			s := k.session("id")
			// 25 tries are more than the 20 at which kgo's own look-ups end.
			many := k.inject(fault.key, faultnet.Answer, 25, fault.code.Code)
			require.NoError(t, s.Initialize(k.ctx(60*time.Second)))
			require.Equal(t, 25, many.Hits())
			require.Equal(t, txnsession.StateReady, s.State())

			other := k.session("other")
			k.inject(fault.key, faultnet.Answer, forever, fault.code.Code)
			err := other.Initialize(k.ctx(200 * time.Millisecond))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			if fault.key == kmsg.InitProducerID {
				require.ErrorIs(t, err, fault.code, "what kept it from succeeding is told")
			}
			require.Equal(t, txnsession.StateUninitialized, other.State())
			k.net.Reset()
			require.NoError(t, other.Initialize(k.ctx(20*time.Second)))
		})
	}
}

// B11: at the end of the epochs EndTxn answers a new producer id with epoch 0.
func TestB11_EpochOverflow(t *testing.T) {
	for _, lost := range []bool{false, true} {
		k := newKit(t)
		s, w := k.open("id", "r1")
		old := s.ProducerID()
		// Another id stands in for the new producer of this one: kfake does
		// not know of overflows at will.
		init := kmsg.NewPtrInitProducerIDRequest()
		init.TransactionalID, init.TransactionTimeoutMillis = kmsg.StringPtr("other"), 60_000
		resp, err := init.RequestWith(k.ctx(10*time.Second), k.raw)
		require.NoError(t, err)
		if lost {
			k.inject(kmsg.EndTxn, faultnet.CutAfter, 1, 0)
		}
		turned := k.net.Inject(faultnet.Fault{
			Key: int16(kmsg.EndTxn), Node: faultnet.Any, Action: faultnet.Rewrite,
			Match: func(r faultnet.Request) bool { return !lost || k.requests(kmsg.EndTxn) > 0 },
			Edit: func(_ kmsg.Request, r kmsg.Response) {
				e := r.(*kmsg.EndTxnResponse)
				e.ProducerID, e.ProducerEpoch = resp.ProducerID, resp.ProducerEpoch
			},
		})
		require.NoError(t, s.Commit(k.ctx(10*time.Second)))
		require.Equal(t, 1, turned.Hits())
		require.Equal(t, resp.ProducerID, s.ProducerID())
		require.NotEqual(t, old, s.ProducerID())
		require.Equal(t, resp.ProducerEpoch, s.ProducerEpoch())
		require.NoError(t, s.Begin(k.ctx(10*time.Second)))
		txn, err := s.Enlist(w, txnsession.PhaseSend)
		require.NoError(t, err)
		for p := range int32(4) {
			seq, err := txn.Own(k.ctx(10*time.Second), k.topic, [16]byte{}, p)
			require.NoError(t, err)
			require.Zero(t, seq, "partition %d of a new producer id", p)
		}
		require.Equal(t, resp.ProducerID, txn.ProducerID())
		require.NotEqual(t, int16(math.MinInt16), txn.ProducerEpoch())
	}
}

// B17: a coordinator that has forgotten the id ends a live session for good,
// and tells a committer to stop trying.
func TestB17_ForgottenID(t *testing.T) { each(t, testB17_ForgottenID) }

func testB17_ForgottenID(t *testing.T, b backend) {
	t.Run("live", func(t *testing.T) {
		k := b.kit(t)
		s, _ := k.open("id", "r")
		k.inject(kmsg.EndTxn, faultnet.Answer, forever, kerr.InvalidProducerIDMapping.Code)
		err := s.Commit(k.ctx(10 * time.Second))
		require.True(t, txnsession.IsFatal(err) && txnsession.IsNotCommitted(err), err)
		require.False(t, txnsession.IsFenced(err), err)
		require.Equal(t, txnsession.StateFatalError, s.State())
		inits := k.requests(kmsg.InitProducerID)
		require.True(t, txnsession.IsFatal(s.Begin(k.ctx(time.Second))))
		require.True(t, txnsession.IsFatal(s.Initialize(k.ctx(time.Second))))
		require.Equal(t, inits, k.requests(kmsg.InitProducerID), "no silent InitProducerId")
	})
	t.Run("resumed", func(t *testing.T) {
		k := b.kit(t)
		s, err := txnsession.Resume(k.nc, k.id("id"), 7, 1, txnsession.AllowResumeOldRules())
		require.NoError(t, err)
		end := k.inject(kmsg.EndTxn, faultnet.Answer, forever, kerr.InvalidProducerIDMapping.Code)
		err = s.Commit(k.ctx(10 * time.Second))
		require.ErrorIs(t, err, txnsession.ErrOutcomeLost)
		require.True(t, txnsession.IsFatal(err), err)
		require.False(t, txnsession.IsNotCommitted(err), err)
		require.Equal(t, 1, end.Hits())
		require.NoError(t, s.Close(k.ctx(time.Second)))
	})
}

// takeOver is another process that takes the id over. It does so twice: kfake
// takes an epoch that is one behind for a repetition, which a broker does only
// for the same owner.
func (k *kit) takeOver(id string) *txnsession.Session {
	k.t.Helper()
	s, err := txnsession.New(k.client(), k.id(id))
	require.NoError(k.t, err)
	require.NoError(k.t, s.Initialize(k.ctx(10*time.Second)))
	require.NoError(k.t, s.Initialize(k.ctx(10*time.Second)))
	return s
}

// B19: every call on a fenced session gives the same fenced error and sends
// nothing but questions.
func TestB19_Fenced(t *testing.T) { each(t, testB19_Fenced) }

func testB19_Fenced(t *testing.T, b backend) {
	k := b.kit(t)
	a, w := k.open("id", "a")
	owner := k.takeOver("id")
	err := a.Commit(k.ctx(10 * time.Second))
	require.True(t, txnsession.IsFenced(err) && txnsession.IsFatal(err) && txnsession.IsNotCommitted(err), err)
	require.Equal(t, txnsession.StateFatalError, a.State())
	require.False(t, a.Reusable())
	cause := kerr.ProducerFenced
	require.True(t, errors.Is(err, cause) || errors.Is(err, kerr.InvalidProducerEpoch), err)
	k.net.Reset()
	for name, call := range map[string]func() error{
		"produce": func() error { return w.write(0, "x") },
		"send offsets": func() error {
			return a.SendOffsets(k.ctx(time.Second), map[string]map[int32]kgo.EpochOffset{k.topic: {0: {Offset: 1}}}, txnsession.Unfenced("g"))
		},
		"prepare":    func() error { _, err := a.Prepare(k.ctx(time.Second)); return err },
		"commit":     func() error { return a.Commit(k.ctx(time.Second)) },
		"abort":      func() error { return a.Abort(k.ctx(time.Second)) },
		"begin":      func() error { return a.Begin(k.ctx(time.Second)) },
		"initialize": func() error { return a.Initialize(k.ctx(time.Second)) },
		"heartbeat":  func() error { return a.Heartbeat(k.ctx(time.Second)) },
		"partitions": func() error { return a.AddPartitions(k.ctx(time.Second), map[string][]int32{k.topic: {1}}) },
	} {
		err := call()
		require.True(t, txnsession.IsFenced(err) && txnsession.IsFatal(err), "%s: %v", name, err)
		require.ErrorIs(t, err, txnsession.ErrState, name)
	}
	require.Empty(t, k.net.Log(), "a fenced session sends nothing")
	require.NoError(t, owner.Begin(k.ctx(10*time.Second)))
	wb := &rawWriter{k: k, s: owner}
	require.NoError(t, wb.write(0, "b"))
	require.NoError(t, owner.Commit(k.ctx(10*time.Second)))
	require.Equal(t, []string{"b"}, k.committed(0))
	require.NoError(t, owner.Close(k.ctx(time.Second)))
}

// A zombie that recovers with Initialize sends the pair it holds (KIP-360), so
// that the coordinator refuses it; kfake does not, and the answer is made here.
func TestZombieStaysFenced(t *testing.T) {
	k := newKit(t)
	a := k.ready("id")
	fenced := k.inject(kmsg.InitProducerID, faultnet.Answer, 1, kerr.ProducerFenced.Code)
	err := a.Initialize(k.ctx(10 * time.Second))
	require.True(t, txnsession.IsFenced(err), err)
	require.Equal(t, 1, fenced.Hits())
	require.Equal(t, txnsession.StateFatalError, a.State())
	for _, r := range slices.Backward(k.net.Log()) {
		if r.Key == int16(kmsg.InitProducerID) {
			req, err := r.Decode()
			require.NoError(t, err)
			init := req.(*kmsg.InitProducerIDRequest)
			require.Equal(t, a.ProducerID(), init.ProducerID)
			require.Equal(t, a.ProducerEpoch(), init.ProducerEpoch)
			break
		}
	}
}

// B25: a denial of the id names what may be missing and leaves the object
// usable after the grant; of a group or topic it is abortable.
func TestB25_Denied(t *testing.T) { each(t, testB25_Denied) }

func testB25_Denied(t *testing.T, b backend) {
	k := b.kit(t)
	s := k.session("id")
	k.inject(kmsg.InitProducerID, faultnet.Answer, 1, kerr.TransactionalIDAuthorizationFailed.Code)
	err := s.Initialize(k.ctx(10 * time.Second))
	require.ErrorIs(t, err, kerr.TransactionalIDAuthorizationFailed)
	require.False(t, txnsession.IsFatal(err), err)
	require.Equal(t, txnsession.StateUninitialized, s.State())
	require.NoError(t, s.Initialize(k.ctx(10*time.Second)))

	w := k.writer(s)
	offsets := map[string]map[int32]kgo.EpochOffset{k.topic: {0: {Offset: 1, Epoch: -1}}}
	for _, code := range []*kerr.Error{kerr.GroupAuthorizationFailed, kerr.TopicAuthorizationFailed} {
		require.NoError(t, s.Begin(k.ctx(10*time.Second)))
		require.NoError(t, w.write(0, "r"))
		k.inject(kmsg.TxnOffsetCommit, faultnet.Answer, 1, code.Code)
		err = s.SendOffsets(k.ctx(10*time.Second), offsets, txnsession.Unfenced("g"))
		require.ErrorIs(t, err, code)
		require.True(t, txnsession.IsAbortable(err), err)
		require.True(t, txnsession.IsNotCommitted(s.Commit(k.ctx(time.Second))))
		require.NoError(t, s.Abort(k.ctx(10*time.Second)))
	}
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.NoError(t, s.SendOffsets(k.ctx(10*time.Second), offsets, txnsession.Unfenced("g")))
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	require.Empty(t, k.committed(0))
}

// B26: two-phase commit on a cluster without it is refused before anything is
// sent that could abort what another holder prepared.
func TestB26_TwoPhaseUnsupported(t *testing.T) {
	k := newKit(t)
	_, _ = k.open("id", "r")
	inits := k.requests(kmsg.InitProducerID)
	for _, call := range []func(*txnsession.Session) error{
		func(s *txnsession.Session) error { return s.Initialize(k.ctx(10 * time.Second)) },
		func(s *txnsession.Session) error { return s.InitializeKeepPrepared(k.ctx(10 * time.Second)) },
	} {
		s := k.session("id", txnsession.TwoPhaseCommit())
		err := call(s)
		require.ErrorIs(t, err, txnsession.ErrTwoPhaseCommitUnsupported)
		require.True(t, txnsession.NeverSent(err), err)
		require.Equal(t, txnsession.StateUninitialized, s.State())
		require.NoError(t, s.Close(k.ctx(time.Second)))
	}
	require.Equal(t, inits, k.requests(kmsg.InitProducerID))
	st := k.describe("id")
	require.Equal(t, "Ongoing", st.State)
	r, err := txnsession.Resume(k.nc, k.id("id"), st.ProducerID, st.ProducerEpoch)
	require.NoError(t, err)
	require.NoError(t, r.Commit(k.ctx(10*time.Second)))
	require.Equal(t, []string{"r"}, k.committed(0))
}

// B27: sessions that never get going cost nothing in the end, and broken ones
// say that they must not be used again.
func TestB27_BrokenSessionsLeakNothing(t *testing.T) {
	k := newKit(t)
	k.net.DownAll()
	before := runtime.NumGoroutine()
	for range 500 {
		s, err := txnsession.New(k.nc, k.id("id"))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		require.Error(t, s.Initialize(ctx))
		cancel()
		require.False(t, s.Reusable())
		require.NoError(t, s.Close(context.Background()))
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < before+20 }, 10*time.Second, 10*time.Millisecond, "goroutines must not grow with sessions")
	k.net.UpAll()
	s, _ := k.open("id2", "r")
	require.True(t, s.Reusable())
	k.inject(kmsg.EndTxn, faultnet.CutBefore, forever, 0)
	require.Error(t, s.Commit(k.ctx(100*time.Millisecond)))
	require.False(t, s.Reusable(), "an unresolved commit")
	k.net.Reset()
	require.NoError(t, s.Commit(k.ctx(20*time.Second)))
	require.True(t, s.Reusable())
}

// B28: an empty id is refused; two processes with the same stable id fence each
// other, quietly.
func TestB28_StableIDs(t *testing.T) { each(t, testB28_StableIDs) }

func testB28_StableIDs(t *testing.T, b backend) {
	k := b.kit(t)
	_, err := txnsession.New(k.nc, "")
	require.ErrorIs(t, err, txnsession.ErrEmptyID)
	_, err = txnsession.Resume(k.nc, "", 1, 1)
	require.ErrorIs(t, err, txnsession.ErrEmptyID)
	one, _ := k.open("committer-0", "r")
	two := k.takeOver("committer-0")
	err = one.Commit(k.ctx(10 * time.Second))
	require.True(t, txnsession.IsFenced(err), err)
	require.NoError(t, one.Close(k.ctx(time.Second)), "a fenced session closes without a complaint")
	require.NoError(t, two.Close(k.ctx(time.Second)))
}

// B38: markers that are still being written are waited for; a budget that ends
// leaves no way to commit without the offsets.
func TestB38_MarkersBeingWritten(t *testing.T) { each(t, testB38_MarkersBeingWritten) }

func testB38_MarkersBeingWritten(t *testing.T, b backend) {
	k := b.kit(t)
	s := k.ready("id")
	offsets := map[string]map[int32]kgo.EpochOffset{k.topic: {0: {Offset: 1, Epoch: -1}}}
	key := kmsg.TxnOffsetCommit
	if b.old {
		key = kmsg.AddOffsetsToTxn
	}
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	busy := k.inject(key, faultnet.Answer, 5, kerr.ConcurrentTransactions.Code)
	require.NoError(t, s.SendOffsets(k.ctx(10*time.Second), offsets, txnsession.Unfenced("g")))
	require.Equal(t, 5, busy.Hits())
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))

	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	k.inject(key, faultnet.Answer, forever, kerr.ConcurrentTransactions.Code)
	err := s.SendOffsets(k.ctx(200*time.Millisecond), offsets, txnsession.Unfenced("g"))
	require.ErrorIs(t, err, kerr.ConcurrentTransactions)
	// Abortable; or, if the context ended while a try was under way, waiting for
	// its repetition. Either way there is no commit without the offsets.
	ends := k.requests(kmsg.EndTxn)
	if s.State() != txnsession.StateInTransaction {
		require.Equal(t, txnsession.StateAbortableError, s.State())
		require.True(t, txnsession.IsNotCommitted(s.Commit(k.ctx(time.Second))))
	} else {
		require.ErrorIs(t, s.Commit(k.ctx(time.Second)), txnsession.ErrState)
	}
	require.Equal(t, ends, k.requests(kmsg.EndTxn))
	k.net.Reset()
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
	assert.Equal(t, txnsession.StateReady, s.State())
}

// oldRules makes kfake a cluster whose transaction.version is not finalized.
func oldRules(t *testing.T) kfake.Opt {
	t.Helper()
	return kfake.MaxVersions(kversion.V3_9_0())
}
