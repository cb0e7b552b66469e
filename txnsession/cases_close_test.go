package txnsession_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/txnsession"
)

// B23, invariant 10: Close returns within its bound in every state with every
// broker dead, twice at once; PREPARED, resumed and unresolved sessions send
// no EndTxn. The leak check of the package watches what is left.
func TestB23_CloseInEveryState(t *testing.T) {
	states := map[string]func(*testing.T, *kit) *txnsession.Session{
		"uninitialized": func(_ *testing.T, k *kit) *txnsession.Session { return k.session("id") },
		"initializing": func(t *testing.T, k *kit) *txnsession.Session {
			s := k.session("id")
			held := k.inject(kmsg.InitProducerID, faultnet.Delay, forever, 0)
			busy(t, func() { _ = s.Initialize(context.Background()) })
			require.Eventually(t, func() bool { return held.Hits() > 0 }, 10*time.Second, time.Millisecond, "InitProducerId is under way")
			require.Equal(t, txnsession.StateInitializing, s.State())
			return s
		},
		"ready":          func(_ *testing.T, k *kit) *txnsession.Session { return k.ready("id") },
		"in_transaction": func(_ *testing.T, k *kit) *txnsession.Session { s, _ := k.open("id", "r"); return s },
		"prepared": func(t *testing.T, k *kit) *txnsession.Session {
			s, _ := k.open("id", "r")
			_, err := s.Prepare(k.ctx(10 * time.Second))
			require.NoError(t, err)
			return s
		},
		"resumed": func(t *testing.T, k *kit) *txnsession.Session {
			_, _ = k.open("id", "r")
			st := k.describe("id")
			s, err := txnsession.Resume(k.nc, k.id("id"), st.ProducerID, st.ProducerEpoch)
			require.NoError(t, err)
			return s
		},
		"committing": func(t *testing.T, k *kit) *txnsession.Session {
			s, _ := k.open("id", "r")
			held := k.inject(kmsg.EndTxn, faultnet.Delay, forever, 0)
			busy(t, func() { _ = s.Commit(context.Background()) })
			require.Eventually(t, func() bool { return held.Hits() > 0 }, 10*time.Second, time.Millisecond, "EndTxn is under way")
			require.Equal(t, txnsession.StateCommitting, s.State())
			return s
		},
		"committing, unresolved": func(t *testing.T, k *kit) *txnsession.Session {
			s, _ := k.open("id", "r")
			k.inject(kmsg.EndTxn, faultnet.CutBefore, forever, 0)
			require.Error(t, s.Commit(k.ctx(50*time.Millisecond)))
			require.Equal(t, txnsession.StateCommitting, s.State())
			return s
		},
		"aborting": func(t *testing.T, k *kit) *txnsession.Session {
			s, _ := k.open("id", "r")
			k.inject(kmsg.EndTxn, faultnet.CutBefore, forever, 0)
			require.Error(t, s.Abort(k.ctx(50*time.Millisecond)))
			require.Equal(t, txnsession.StateAborting, s.State())
			return s
		},
		"abortable_error": func(t *testing.T, k *kit) *txnsession.Session {
			s, w := k.open("id", "r")
			w.txn.Fail(context.DeadlineExceeded)
			require.Equal(t, txnsession.StateAbortableError, s.State())
			return s
		},
		"fatal_error": func(t *testing.T, k *kit) *txnsession.Session {
			s, _ := k.open("id", "r")
			k.inject(kmsg.EndTxn, faultnet.Answer, 1, 49)
			require.Error(t, s.Commit(k.ctx(5*time.Second)))
			require.Equal(t, txnsession.StateFatalError, s.State())
			return s
		},
		"closed": func(t *testing.T, k *kit) *txnsession.Session {
			s := k.ready("id")
			require.NoError(t, s.Close(context.Background()))
			return s
		},
	}
	tries := map[string]bool{"in_transaction": true, "abortable_error": true}
	for name, reach := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKit(t)
			s := reach(t, k)
			ends := k.requests(kmsg.EndTxn)
			k.net.DownAll()
			began := time.Now()
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
					defer cancel()
					_ = s.Close(ctx)
				})
			}
			both.Wait()
			require.Less(t, time.Since(began), 5*time.Second, "Close is bounded by its context")
			require.Equal(t, txnsession.StateClosed, s.State())
			require.Equal(t, ends, k.requests(kmsg.EndTxn))
			require.ErrorIs(t, s.Begin(context.Background()), txnsession.ErrClosed)

			// Once more with the brokers alive: one abort where it is due.
			alive := newKit(t)
			s = reach(t, alive)
			ends = alive.requests(kmsg.EndTxn)
			alive.net.Inject(faultnet.Fault{Key: faultnet.Any, Node: faultnet.Any, Action: faultnet.Delay, Times: forever, Delay: time.Nanosecond})
			require.NoError(t, s.Close(context.Background()))
			want := 0
			if tries[name] {
				want = 1
			}
			require.Equal(t, want, alive.requests(kmsg.EndTxn)-ends)
			if name == "prepared" || name == "resumed" {
				require.Equal(t, "Ongoing", alive.describe("id").State, "the transaction is left as it is")
			}
		})
	}
}

// busy runs fn beside the test, which waits for it at its end.
func busy(t *testing.T, fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	t.Cleanup(func() {
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Error("a call went on after Close")
		}
	})
}

// A call that is under way when Close comes ends with ErrClosed.
func TestCloseEndsCalls(t *testing.T) { each(t, testCloseEndsCalls) }

func testCloseEndsCalls(t *testing.T, b backend) {
	k := b.kit(t)
	s, _ := k.open("id", "r")
	held := k.inject(kmsg.EndTxn, faultnet.Delay, forever, 0)
	result := make(chan error, 1)
	go func() { result <- s.Commit(context.Background()) }()
	require.Eventually(t, func() bool { return held.Hits() > 0 }, 10*time.Second, time.Millisecond, "EndTxn is under way")
	require.NoError(t, s.Close(context.Background()))
	select {
	case err := <-result:
		require.ErrorIs(t, err, txnsession.ErrClosed)
		require.True(t, txnsession.IsOutcomeUnknown(err), err)
	case <-time.After(5 * time.Second):
		t.Fatal("Commit went on after Close")
	}
}
