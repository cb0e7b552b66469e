package proof_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/txnsession"
)

// B39. The coordinators of two sessions are moved from node to node thirty times
// while they commit. Nothing is lost, nothing is there twice, and no call fails
// for good.
func TestB39_CoordinatorsMove(t *testing.T) {
	const moves = 30
	k := onReal(t, kafkatest.ThreeNodes(), 3)
	var moved hookMoves
	nc := k.client(netclient.WithHooks(&moved))
	sessions := []*txnsession.Session{k.ready(nc), k.ready(nc)}
	done := make(chan struct{})
	want := make([][]string, len(sessions))
	commits := make([]atomic.Int64, len(sessions))
	var work errgroup.Group
	for i, s := range sessions {
		p := k.producer(s)
		work.Go(func() error {
			for n := 0; ; n++ {
				select {
				case <-done:
					return nil
				default:
				}
				if err := s.Begin(k.ctx()); err != nil {
					return err
				}
				for part := range int32(3) {
					p.Produce(k.ctx(), record(part, fmt.Sprintf("%d-%d", i, n)), nil)
				}
				err := s.Commit(k.ctx())
				for txnsession.IsOutcomeUnknown(err) {
					err = s.Commit(k.ctx())
				}
				if err != nil {
					t.Errorf("session %d transaction %d: %v", i, n, err)
					return err
				}
				want[i] = append(want[i], fmt.Sprintf("%d-%d", i, n))
				commits[i].Add(1)
			}
		})
	}
	for m := range moves {
		before := commits[m%2].Load()
		require.NoError(t, k.real.MoveCoordinator(k.ctx(), sessions[m%2].TransactionalID(), m/2%3+1))
		require.Eventually(t, func() bool { return commits[m%2].Load() >= before+2 }, quiet, time.Millisecond,
			"session %d commits after move %d", m%2, m)
	}
	close(done)
	require.NoError(t, work.Wait())

	got := make(map[int32]map[byte][]string)
	for _, r := range k.committed() {
		if got[r.Partition] == nil {
			got[r.Partition] = make(map[byte][]string)
		}
		who := r.Value[0]
		got[r.Partition][who] = append(got[r.Partition][who], string(r.Value))
	}
	for part := range int32(3) {
		for i := range sessions {
			require.Equal(t, want[i], got[part]['0'+byte(i)], "session %d, partition %d", i, part)
		}
	}
	t.Logf("%d and %d transactions, %d moves that the client saw", len(want[0]), len(want[1]), moved.Load())
	require.GreaterOrEqual(t, moved.Load(), int64(moves/2), "the sessions met the moves")
}

// hookMoves counts the moves of coordinators that a client has seen.
type hookMoves struct{ atomic.Int64 }

func (h *hookMoves) OnCoordinatorChange(string, int32, int32) { h.Add(1) }
