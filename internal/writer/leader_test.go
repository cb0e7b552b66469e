package writer_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// While something is in flight to a broker that does not answer any more, nothing
// of the partition goes to the new leader: it could only be refused.
func TestSilentOldLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallBatches)
		r.lane.delay = time.Millisecond
		hold := make(chan struct{})
		moved := false
		var mu sync.Mutex
		r.lane.handle = func(node int32, n int, _ *kmsg.ProduceRequest) *reply {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case node == 1 && moved:
				return &reply{code: kerr.NotLeaderForPartition.Code, wait: hold}
			case n == 8:
				moved = true
				r.cluster.set("t", 1, 2, 2, 2)
				return &reply{code: kerr.NotLeaderForPartition.Code}
			}
			return nil
		}
		tx := r.session.begin()
		var p promised
		want := numbered("v", 1000)
		r.produce(&p, 0, want...)
		pass(10 * time.Second)
		atNew := 0
		for _, s := range r.lane.sent() {
			if s.node == 2 {
				atNew++
			}
		}
		require.Zero(t, atNew)
		close(hold)
		require.NoError(t, r.session.commit(context.Background(), tx))
		require.Equal(t, want, r.lane.values("t", 0))
	})
}

// The leader moves while batches are in flight: they go on at the new one, in
// order.
func TestLeaderMoves(t *testing.T) {
	for name, hinted := range map[string]bool{"by metadata": false, "by a hint in the answer": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, smallBatches)
				r.lane.delay = time.Millisecond
				var mu sync.Mutex
				leader := int32(1)
				r.lane.leader = func(string, int32) int32 {
					mu.Lock()
					defer mu.Unlock()
					return leader
				}
				r.lane.handle = func(node int32, n int, _ *kmsg.ProduceRequest) *reply {
					mu.Lock()
					defer mu.Unlock()
					if n == 4 {
						leader = 2
					}
					rep := &reply{apply: true}
					if hinted && node != leader {
						rep.edit = func(resp *kmsg.ProduceResponse) {
							cl := &resp.Topics[0].Partitions[0].CurrentLeader
							cl.LeaderID, cl.LeaderEpoch = 2, 9
						}
					}
					return rep
				}
				if !hinted {
					r.cluster.onRefresh = func(string) { r.cluster.set("t", 1, 2, 2, 2) }
				}
				tx := r.session.begin()
				var p promised
				want := numbered("v", 1000)
				r.produce(&p, 0, want...)
				begun := time.Now()
				require.NoError(t, r.session.commit(context.Background(), tx))
				require.Equal(t, want, r.lane.values("t", 0))
				require.Equal(t, want, p.values())
				require.Less(t, time.Since(begun), time.Second)
				if hinted {
					require.NotEmpty(t, r.cluster.hints)
					require.Zero(t, r.cluster.refreshed("t"), "a hint is enough")
				}
			})
		})
	}
}

// A partition without a leader is held back until metadata names one.
func TestLeaderlessPartitionWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cluster.set("t", 1, -1, 2, 1)
		refreshes := 0
		r.cluster.onRefresh = func(string) {
			if refreshes++; refreshes == 3 {
				r.cluster.set("t", 1, 1, 2, 1)
			}
		}
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a")
		r.produce(&p, 1, "b")
		synctest.Wait()
		require.Equal(t, []string{"b"}, p.values(), "others are not held up")
		require.NoError(t, r.session.commit(context.Background(), tx))
		p.require(t, 2, nil)
	})
}
