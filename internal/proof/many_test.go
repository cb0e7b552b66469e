package proof_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

// A thousand sessions share one client of a cluster of three nodes. Each commits
// a record; all stay open. Goroutines and connections are those of the client's
// lanes, however many sessions there are.
func TestAThousandSessions(t *testing.T) {
	const (
		sessions         = 1000
		atOnce           = 64
		nodes            = 3
		coordinatorLanes = 2
		produceLanes     = 3
		lookupLanes      = 1
	)
	k := onReal(t, kafkatest.ThreeNodes(), 12)
	nc := k.client(netclient.CoordinatorLanes(coordinatorLanes), netclient.ProduceLanes(produceLanes))
	before := runtime.NumGoroutine()

	var mu sync.Mutex
	var open []*txnsession.Session
	var work errgroup.Group
	work.SetLimit(atOnce)
	start := func(from, to int) {
		for i := from; i < to; i++ {
			work.Go(func() error {
				s, err := txnsession.New(nc, fmt.Sprintf("%s-%d", kafkatest.UniqueID(t), i))
				if err != nil {
					return err
				}
				mu.Lock()
				open = append(open, s)
				mu.Unlock()
				return commitOne(k, s, i)
			})
		}
		require.NoError(t, work.Wait())
	}
	// idle is the number of goroutines once nothing is under way any more.
	idle := func() int {
		last, same := runtime.NumGoroutine(), 0
		require.Eventually(t, func() bool {
			now := runtime.NumGoroutine()
			if same++; now != last {
				last, same = now, 0
			}
			return same == 10
		}, quiet, quiet/1000, "the number of goroutines stands still")
		return last - before
	}

	start(0, 100)
	few := idle()
	start(100, sessions)
	many := idle()
	t.Logf("goroutines with 100 sessions: %d, with %d: %d", few, sessions, many)

	lanes := coordinatorLanes + produceLanes + lookupLanes
	// Each lane may have a connection to each node, and one to each seed.
	require.Less(t, many, 50+lanes*2*nodes*2)
	require.Less(t, many, few+50, "they do not grow with the sessions")

	log := k.net.Log()
	coordinators, produce := carrying(log, coordinatorKeys...), carrying(log, kmsg.Produce)
	t.Logf("connections: %d in all, %d to coordinators, %d with Produce; %d requests", len(keysOf(log)), len(coordinators), len(produce), len(log))
	require.LessOrEqual(t, len(coordinators), coordinatorLanes*nodes)
	require.LessOrEqual(t, len(produce), produceLanes*nodes)
	require.LessOrEqual(t, len(keysOf(log)), lanes*2*nodes)
	requireApart(t, log)
	require.Equal(t, sessions, k.requests(kmsg.EndTxn), "one EndTxn each")

	want := make([]string, sessions)
	for i := range want {
		want[i] = fmt.Sprint(i)
	}
	require.ElementsMatch(t, want, values(k.committed()))
	for _, s := range open {
		require.Equal(t, txnsession.StateReady, s.State())
		require.NoError(t, s.Close(k.ctx()))
	}
}

// commitOne has a new session commit a record that tells its number.
func commitOne(k *kit, s *txnsession.Session, number int) error {
	ctx := k.t.Context()
	if err := s.Initialize(ctx); err != nil {
		return err
	}
	p, err := producer.New(s)
	if err != nil {
		return err
	}
	if err := s.Begin(ctx); err != nil {
		return err
	}
	r := record(0, fmt.Sprint(number))
	r.Topic = k.topic
	p.Produce(ctx, r, nil)
	return s.Commit(ctx)
}
