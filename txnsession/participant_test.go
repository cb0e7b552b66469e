package txnsession_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/link"
	"github.com/ktxn/ktxn/txnsession"
)

// part is a participant made of functions.
type part struct {
	flush, discard func(context.Context) error
	settle         func(txnsession.Verdict)
}

func (p *part) Flush(ctx context.Context) error {
	if p.flush == nil {
		return nil
	}
	return p.flush(ctx)
}

func (p *part) Discard(ctx context.Context) error {
	if p.discard == nil {
		return nil
	}
	return p.discard(ctx)
}

func (p *part) Settle(v txnsession.Verdict) {
	if p.settle != nil {
		p.settle(v)
	}
}

func TestPhases(t *testing.T) { each(t, testPhases) }

func testPhases(t *testing.T, b backend) {
	k := b.kit(t)
	s := k.ready("id")
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	var order []string
	note := func(name string) func(context.Context) error {
		return func(context.Context) error {
			order = append(order, name)
			return nil
		}
	}
	settled := 0
	verify := &part{flush: note("verify"), settle: func(v txnsession.Verdict) {
		settled++
		require.Equal(t, txnsession.Committed, v)
		require.NotEqual(t, txnsession.StateReady, s.State(), "settled before the session is ready")
	}}
	late := k.writer(s)
	late.flush = note("send late")
	work := &part{}
	work.flush = func(ctx context.Context) error {
		order = append(order, "work")
		// The application may still produce, by the context it was given...
		txn, err := link.Enlist(ctx, s, late)
		require.NoError(t, err)
		_, err = txn.(*txnsession.Txn).Own(ctx, k.topic, [16]byte{}, 0)
		require.NoError(t, err)
		_, err = k.produce(ctx, k.id("id"), txn.(*txnsession.Txn), 0, 0, "late")
		require.NoError(t, err)
		require.NoError(t, s.SendOffsets(ctx, map[string]map[int32]kgo.EpochOffset{k.topic: {1: {Offset: 1, Epoch: -1}}}, txnsession.Unfenced("g")))
		// ...and nobody else may.
		_, err = s.Enlist(&part{}, txnsession.PhaseSend)
		require.ErrorIs(t, err, txnsession.ErrState)
		require.ErrorIs(t, s.SendOffsets(context.Background(), nil, txnsession.Unfenced("g")), txnsession.ErrState)
		require.ErrorIs(t, s.AddPartitions(context.Background(), nil), txnsession.ErrState)
		return nil
	}
	var txn *txnsession.Txn
	for _, e := range []struct {
		p     txnsession.Participant
		phase txnsession.Phase
	}{{verify, txnsession.PhaseVerify}, {&part{flush: note("send")}, txnsession.PhaseSend}, {work, txnsession.PhaseWork}} {
		got, err := s.Enlist(e.p, e.phase)
		require.NoError(t, err)
		txn = got
	}
	again, err := s.Enlist(work, txnsession.PhaseSend)
	require.NoError(t, err)
	require.Same(t, txn, again, "idempotent in one transaction")
	select {
	case <-txn.Ending():
		t.Fatal("not ending yet")
	default:
	}
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	require.Equal(t, []string{"work", "send", "send late", "verify"}, order)
	require.Equal(t, 1, settled)
	<-txn.Ending()
	require.Equal(t, []string{"late"}, k.committed(0))

	// A Txn outlives nothing.
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	txn.Fail(errors.New("late"))
	require.Equal(t, txnsession.StateInTransaction, s.State())
	_, err = txn.Own(k.ctx(time.Second), k.topic, [16]byte{}, 3)
	require.ErrorIs(t, err, txnsession.ErrState)
	require.ErrorIs(t, txn.SendOffsets(k.ctx(time.Second), map[string]map[int32]kgo.EpochOffset{k.topic: {1: {Offset: 1}}}, txnsession.Unfenced("g")), txnsession.ErrState)
	txn.Advance(k.topic, [16]byte{}, 0, 5)
	txn.Wrote(k.topic, 0, 5)
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
}

func TestEnlistIsRefused(t *testing.T) {
	k := newKit(t)
	s := k.session("id")
	_, err := s.Enlist(&part{}, txnsession.PhaseSend)
	require.ErrorIs(t, err, txnsession.ErrState)
	require.NoError(t, s.Initialize(k.ctx(10*time.Second)))
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	_, err = s.Enlist(nil, txnsession.PhaseSend)
	require.Error(t, err)
	_, err = s.Enlist(&part{}, txnsession.Phase(9))
	require.Error(t, err)
}

// A Flush that its context cuts has sent nothing: Commit again, or Abort.
func TestFlushCutShort(t *testing.T) { each(t, testFlushCutShort) }

func testFlushCutShort(t *testing.T, b backend) {
	for _, then := range []string{"commit", "abort"} {
		k := b.kit(t)
		s, w := k.open("id", "r")
		block := true
		w.flush = func(ctx context.Context) error {
			if !block {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		err := s.Commit(k.ctx(50 * time.Millisecond))
		require.True(t, txnsession.NeverSent(err), err)
		require.False(t, txnsession.IsNotCommitted(err) || txnsession.IsOutcomeUnknown(err), err)
		require.Equal(t, txnsession.StateInTransaction, s.State())
		require.ErrorIs(t, w.write(1, "more"), txnsession.ErrState, "no more work is taken")
		require.Zero(t, k.requests(kmsg.EndTxn))
		block = false
		if then == "commit" {
			require.NoError(t, s.Commit(k.ctx(10*time.Second)))
			require.Equal(t, []string{"r"}, k.committed(0))
		} else {
			require.NoError(t, s.Abort(k.ctx(10*time.Second)))
			require.Empty(t, k.committed(0))
		}
	}
}

// An abort that is cut while participants drop their work cannot be followed
// by a commit.
func TestDiscardCutShort(t *testing.T) { each(t, testDiscardCutShort) }

func testDiscardCutShort(t *testing.T, b backend) {
	k := b.kit(t)
	s, w := k.open("id", "r")
	block := true
	w.discard = func(ctx context.Context) error {
		if !block {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	err := s.Abort(k.ctx(50 * time.Millisecond))
	require.True(t, txnsession.IsNotCommitted(err) && txnsession.IsAbortable(err), err)
	require.Equal(t, txnsession.StateAbortableError, s.State())
	require.True(t, txnsession.IsNotCommitted(s.Commit(k.ctx(time.Second))))
	require.Zero(t, k.requests(kmsg.EndTxn))
	block = false
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
	require.Empty(t, k.committed(0))
}

func TestOwn(t *testing.T) { each(t, testOwn) }

func testOwn(t *testing.T, b backend) {
	k := b.kit(t)
	s := k.ready("id")
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	one, err := s.Enlist(&part{}, txnsession.PhaseSend)
	require.NoError(t, err)
	two, err := s.Enlist(&part{settle: func(txnsession.Verdict) {}}, txnsession.PhaseSend)
	require.NoError(t, err)
	seq, err := one.Own(k.ctx(time.Second), k.topic, [16]byte{}, 0)
	require.NoError(t, err)
	require.Zero(t, seq)
	_, err = two.Own(k.ctx(time.Second), k.topic, [16]byte{}, 0)
	require.ErrorIs(t, err, txnsession.ErrPartitionOwned)
	one.Advance(k.topic, [16]byte{}, 0, 10)
	seq, err = one.Own(k.ctx(time.Second), k.topic, [16]byte{}, 0)
	require.NoError(t, err)
	require.Equal(t, int32(10), seq)
	one.Advance(k.topic, [16]byte{}, 0, 2147483647-10)
	one.Advance(k.topic, [16]byte{}, 0, 3)
	seq, err = one.Own(k.ctx(time.Second), k.topic, [16]byte{}, 0)
	require.NoError(t, err)
	require.Equal(t, int32(2), seq, "sequence numbers wrap from MaxInt32 to 0")
	seq, err = one.Own(k.ctx(time.Second), k.topic, [16]byte{1}, 0)
	require.NoError(t, err)
	require.Zero(t, seq, "a topic that was made again is another")
}

// The first work of a transaction waits for the markers of the last.
func TestWorkWaitsForMarkers(t *testing.T) {
	k := newKit(t)
	s, w := k.open("id", "a")
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	writing := k.state("id", "PrepareCommit", s.ProducerID(), s.ProducerEpoch())
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	wrote := make(chan error, 1)
	go func() { wrote <- w.write(0, "b") }()
	require.Eventually(t, func() bool { return writing.Hits() >= 3 }, 10*time.Second, time.Millisecond, "the coordinator is asked again")
	select {
	case err := <-wrote:
		t.Fatal(err, "work did not wait for the markers")
	default:
	}
	writing.Remove()
	require.NoError(t, <-wrote)
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	require.Equal(t, []string{"a", "b"}, k.committed(0))

	// A coordinator that does not answer holds the work back for a second at
	// most, and an abort ends the wait at once.
	held := k.inject(kmsg.DescribeTransactions, faultnet.Delay, forever, 0)
	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	go func() { wrote <- w.write(0, "c") }()
	require.Eventually(t, func() bool { return held.Hits() > 0 }, 10*time.Second, time.Millisecond, "the coordinator is asked")
	held.Remove()
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
	require.Error(t, <-wrote)
	require.Equal(t, []string{"a", "b"}, k.committed(0))
}

// Many goroutines call anything: one end wins, its equals join it, its
// opposites and everything out of place get state errors.
func TestManyGoroutines(t *testing.T) { each(t, testManyGoroutines) }

func testManyGoroutines(t *testing.T, b backend) {
	k := b.kit(t)
	s := k.ready("id")
	w := k.writer(s)
	var commits, aborts, begins atomic.Int64
	var acked sync.Map
	deadline := time.Now().Add(2 * time.Second)
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for time.Now().Before(deadline) {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				var err error
				switch rng.IntN(5) {
				case 0:
					if err = s.Begin(ctx); err == nil {
						begins.Add(1)
					}
				case 1, 2:
					_, err = s.Enlist(w, txnsession.PhaseSend)
				case 3:
					if err = s.Commit(ctx); err == nil {
						commits.Add(1)
					}
				case 4:
					if err = s.Abort(ctx); err == nil {
						aborts.Add(1)
					}
				}
				cancel()
				if err != nil && !errors.Is(err, txnsession.ErrState) {
					acked.Store(err.Error(), true)
				}
			}
		})
	}
	wg.Wait()
	acked.Range(func(e, _ any) bool {
		t.Errorf("an error that is no state error: %v", e)
		return true
	})
	require.Positive(t, begins.Load())
	require.GreaterOrEqual(t, commits.Load()+aborts.Load(), begins.Load()-1)
	if s.State() == txnsession.StateInTransaction {
		require.NoError(t, s.Abort(k.ctx(10*time.Second)))
	}
	require.Equal(t, txnsession.StateReady, s.State())
}

// A Commit beside a running one joins it; if the first one's context ends, the
// second goes on with the work.
func TestCommitJoins(t *testing.T) { each(t, testCommitJoins) }

func testCommitJoins(t *testing.T, b backend) {
	k := b.kit(t)
	s, _ := k.open("id", "r")
	held := k.inject(kmsg.EndTxn, faultnet.Delay, 1, 0)
	first, second := make(chan error, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { first <- s.Commit(ctx) }()
	require.Eventually(t, func() bool { return held.Hits() > 0 }, 10*time.Second, time.Millisecond, "EndTxn is under way")
	go func() { second <- s.Commit(k.ctx(20 * time.Second)) }()
	require.ErrorIs(t, s.Abort(k.ctx(time.Second)), txnsession.ErrState)
	cancel()
	require.True(t, txnsession.IsOutcomeUnknown(<-first))
	held.Release()
	require.NoError(t, <-second)
	require.Equal(t, []string{"r"}, k.committed(0))
	require.Equal(t, txnsession.StateReady, s.State())
}
