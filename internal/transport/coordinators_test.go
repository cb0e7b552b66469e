package transport_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/transport"
)

func names(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = "id-" + strconv.Itoa(i)
	}
	return ids
}

func TestCoordinatorsAreLookedUpInBatches(t *testing.T) {
	e := start(t)
	ids := names(2000)
	found, err := e.c.Coordinators(within(t), ids)
	require.NoError(t, err)
	require.Len(t, found, len(ids))
	for _, id := range ids[:20] {
		require.Equal(t, e.cluster.CoordinatorFor(id), found[id])
	}
	require.Equal(t, 2, e.nw.Requests(findCoord))

	found, err = e.c.Coordinators(within(t), ids)
	require.NoError(t, err)
	require.Len(t, found, len(ids))
	require.Equal(t, 2, e.nw.Requests(findCoord), "known by now")
}

func TestCallsShareTheirLookups(t *testing.T) {
	e := start(t)
	// While the first look-up is on its way the others gather.
	held := e.fault(findCoord, faultnet.DelayRequest)
	var calls sync.WaitGroup
	lane := e.c.Lane()
	for i, id := range names(2000) {
		calls.Go(func() {
			if r := lane.Do(within(t), initCall(id)); r.Err != nil {
				t.Error(r.Err)
			}
		})
		if i == 0 {
			require.NoError(t, held.WaitHits(within(t), 1))
		}
	}
	held.Release()
	calls.Wait()
	require.LessOrEqual(t, e.nw.Requests(findCoord), 12, "a handful for 2,000 ids")
}

func TestCoordinatorsOfOldBrokers(t *testing.T) {
	for name, v := range map[string]*kversion.Versions{
		"Kafka 0.11": kversion.V0_11_0(), // FindCoordinator v1
		"Kafka 2.8":  kversion.V2_8_0(),  // v3, the last with one id a request
	} {
		t.Run(name, func(t *testing.T) {
			for _, side := range []string{"broker", "both"} {
				t.Run(side, func(t *testing.T) {
					opts := []any{kfake.MaxVersions(v)}
					if side == "both" {
						opts = append(opts, kgo.MaxVersions(v))
					}
					e := start(t, opts...)
					found, err := e.c.Coordinators(within(t), names(50))
					require.NoError(t, err)
					require.Len(t, found, 50)
					require.Equal(t, 50, e.nw.Requests(findCoord))
					r := e.c.Lane().Do(within(t), initCall("id-7"))
					require.NoError(t, r.Err)
					tv, err := e.c.TransactionVersion(within(t), "id-7", false)
					require.NoError(t, err)
					require.Zero(t, tv)
				})
			}
		})
	}
}

// FindCoordinator v0 looks for a group, whatever the type says.
func TestTransactionCoordinatorsNeedAVersion(t *testing.T) {
	caps := kversion.V0_11_0()
	caps.SetMaxKeyVersion(findCoord, 0)
	e := start(t, kgo.MaxVersions(caps))
	r := e.c.Lane().Do(within(t), initCall("id"))
	require.ErrorIs(t, r.Err, kerr.UnsupportedVersion)
	require.Equal(t, transport.ClassUnsupported, r.Class)
	require.Zero(t, e.nw.Requests(findCoord))
}

func TestGroupCoordinator(t *testing.T) {
	e := start(t)
	call := transport.Call{
		Target: transport.GroupCoordinator("g"),
		New: func() kmsg.Request {
			req := kmsg.NewPtrDescribeGroupsRequest()
			req.Groups = []string{"g"}
			return req
		},
		Code: func(r kmsg.Response) (int16, string) { return r.(*kmsg.DescribeGroupsResponse).Groups[0].ErrorCode, "" },
	}
	r := e.c.Lane().Do(within(t), call)
	require.Equal(t, e.cluster.CoordinatorFor("g"), r.Node)
	moved := e.fault(int16(kmsg.DescribeGroups), faultnet.Answer, code(kerr.NotCoordinator.Code))
	r = e.c.Lane().Do(within(t), call)
	require.Equal(t, 1, moved.Hits())
	require.Equal(t, 2, r.Attempts)
	require.Equal(t, 2, e.nw.Requests(findCoord))
}

func TestDoFollowsACoordinatorThatMoved(t *testing.T) {
	e := start(t)
	lane := e.c.Lane()
	require.NoError(t, lane.Do(within(t), initCall("id")).Err)
	old := e.cluster.CoordinatorFor("id")
	for e.cluster.CoordinatorFor("id") == old {
		e.cluster.RehashCoordinators()
	}
	now := e.cluster.CoordinatorFor("id")
	r := lane.Do(within(t), initCall("id"))
	require.NoError(t, r.Err)
	require.Equal(t, now, r.Node)
	require.Equal(t, 2, r.Attempts, "one to the old node")
	require.Equal(t, []move{{"id", old, now}}, e.moved())
}

func TestDoLooksUpAgainWhenTheCoordinatorIsDead(t *testing.T) {
	e := start(t)
	lane := e.c.Lane()
	require.NoError(t, lane.Do(within(t), initCall("id")).Err)
	old := e.cluster.CoordinatorFor("id")
	addr, ok := e.nw.Addr(old)
	require.True(t, ok)
	e.nw.Down(addr)
	for e.cluster.CoordinatorFor("id") == old {
		e.cluster.RehashCoordinators()
	}
	r := lane.Do(within(t), initCall("id"))
	require.NoError(t, r.Err)
	require.NotEqual(t, old, r.Node)
}

// A node that comes back at another address keeps its id.
func TestDoFindsANodeAtItsNewAddress(t *testing.T) {
	e := start(t)
	lane := e.c.Lane()
	require.NoError(t, lane.Do(within(t), initCall("id")).Err)
	node := e.cluster.CoordinatorFor("id")
	addr, ok := e.nw.Addr(node)
	require.True(t, ok)
	e.nw.Down(addr)
	require.NoError(t, e.cluster.RemoveNode(node))
	_, _, err := e.cluster.AddNode(node, 0)
	require.NoError(t, err)
	for e.cluster.CoordinatorFor("id") != node {
		e.cluster.RehashCoordinators()
	}
	r := lane.Do(within(t), initCall("id"))
	require.NoError(t, r.Err)
	require.Equal(t, node, r.Node)
}

func TestLookupsWaitForACoordinator(t *testing.T) {
	e := start(t)
	none := e.fault(findCoord, faultnet.Answer, code(kerr.CoordinatorNotAvailable.Code), times(3))
	r := e.c.Lane().Do(within(t), initCall("id"))
	require.NoError(t, r.Err)
	require.Equal(t, 3, none.Hits())
	require.Equal(t, 1, r.Attempts)
	retries := e.retried()
	require.Len(t, retries, 3)
	require.Equal(t, findCoord, retries[2].Key)
	require.Equal(t, 3, retries[2].Attempt)

	none = e.fault(findCoord, faultnet.Answer, code(kerr.CoordinatorLoadInProgress.Code), times(faultnet.Forever))
	ctx, cancel := context.WithCancel(within(t))
	res := make(chan transport.Result, 1)
	go func() { res <- e.c.Lane().Do(ctx, initCall("other")) }()
	require.NoError(t, none.WaitHits(within(t), 2))
	cancel()
	r = <-res
	require.ErrorIs(t, r.Err, context.Canceled)
	require.ErrorIs(t, r.Err, kerr.CoordinatorLoadInProgress)
	require.False(t, r.Sent)
	require.Equal(t, int32(-1), r.Node)
}

func TestLookupsEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		code  *kerr.Error
		class transport.Class
	}{
		"refused":       {kerr.TransactionalIDAuthorizationFailed, transport.ClassDenied},
		"impossible":    {kerr.InvalidRequest, transport.ClassFatal},
		"in some other": {kerr.PolicyViolation, transport.ClassUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t)
			e.fault(findCoord, faultnet.Answer, code(tc.code.Code))
			r := e.c.Lane().Do(within(t), initCall("id"))
			require.ErrorIs(t, r.Err, tc.code)
			require.Equal(t, tc.class, r.Class)
			require.False(t, r.Sent)
			require.Equal(t, 1, e.nw.Requests(findCoord))

			// Not remembered: it may have been granted since.
			require.NoError(t, e.c.Lane().Do(within(t), initCall("id")).Err)
		})
	}
	t.Run("for some of many", func(t *testing.T) {
		e := start(t)
		e.fault(findCoord, faultnet.Rewrite, edit(func(_ kmsg.Request, resp kmsg.Response) {
			for i, c := range resp.(*kmsg.FindCoordinatorResponse).Coordinators {
				if c.Key == "id-1" {
					resp.(*kmsg.FindCoordinatorResponse).Coordinators[i].ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
				}
			}
		}))
		found, err := e.c.Coordinators(within(t), names(3))
		require.ErrorIs(t, err, kerr.TransactionalIDAuthorizationFailed)
		require.Contains(t, found, "id-0")
		require.Contains(t, found, "id-2")
		require.NotContains(t, found, "id-1")
	})
}

func TestLookupsSurviveOddAnswers(t *testing.T) {
	for name, change := range map[string]func(*kmsg.FindCoordinatorResponse){
		"nothing":  func(r *kmsg.FindCoordinatorResponse) { r.Coordinators = nil },
		"no node":  func(r *kmsg.FindCoordinatorResponse) { r.Coordinators[0].NodeID = -1 },
		"stranger": func(r *kmsg.FindCoordinatorResponse) { r.Coordinators[0].Key = "not asked for" },
		"message": func(r *kmsg.FindCoordinatorResponse) {
			r.Coordinators[0].ErrorCode, r.Coordinators[0].ErrorMessage = 15, kmsg.StringPtr("soon")
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t)
			odd := e.fault(findCoord, faultnet.Rewrite, edit(func(_ kmsg.Request, resp kmsg.Response) {
				change(resp.(*kmsg.FindCoordinatorResponse))
			}))
			require.NoError(t, e.c.Lane().Do(within(t), initCall("id")).Err)
			require.Equal(t, 1, odd.Hits())
			require.Len(t, e.retried(), 1)
		})
	}
}

func TestLookupsAskAnotherBroker(t *testing.T) {
	e := start(t)
	cut := e.fault(findCoord, faultnet.CutBefore)
	require.NoError(t, e.c.Lane().Do(within(t), initCall("id")).Err)
	require.Equal(t, 1, cut.Hits())
	var asked []string
	for _, r := range e.nw.Log() {
		if r.Key == findCoord {
			asked = append(asked, r.Addr)
		}
	}
	require.Len(t, asked, 2)
	require.NotEqual(t, asked[0], asked[1])
	require.True(t, e.retried()[0].MaybeSent)
}

func TestALookupOutlivesWhoAskedForIt(t *testing.T) {
	e := start(t)
	held := e.fault(findCoord, faultnet.Delay)
	ctx, cancel := context.WithCancel(within(t))
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := e.c.Coordinators(ctx, []string{"id"}); first <- err }()
	require.NoError(t, held.WaitHits(within(t), 1))
	go func() { _, err := e.c.Coordinators(within(t), []string{"id"}); second <- err }()
	cancel()
	require.ErrorIs(t, <-first, context.Canceled)
	held.Release()
	require.NoError(t, <-second)
	require.Equal(t, 1, e.nw.Requests(findCoord), "the second joined the first one's look-up")
}

func TestLookupsEndWithTheClient(t *testing.T) {
	e := start(t)
	held := e.fault(findCoord, faultnet.Delay)
	res := make(chan transport.Result, 1)
	go func() { res <- e.c.Lane().Do(within(t), initCall("id")) }()
	require.NoError(t, held.WaitHits(within(t), 1))
	e.c.Close()
	r := <-res
	require.ErrorIs(t, r.Err, kgo.ErrClientClosed)
	require.Equal(t, transport.ClassFatal, r.Class)
	_, err := e.c.Coordinators(within(t), []string{"new"})
	require.ErrorIs(t, err, kgo.ErrClientClosed)
}

func TestForgetIsForTheNodeThatFailed(t *testing.T) {
	e := start(t)
	_, err := e.c.Coordinators(within(t), []string{"id"})
	require.NoError(t, err)
	node := e.cluster.CoordinatorFor("id")
	e.c.Forget(transport.TxnCoordinator("id"), node+1)
	_, err = e.c.Coordinators(within(t), []string{"id"})
	require.NoError(t, err)
	require.Equal(t, 1, e.nw.Requests(findCoord), "somebody else has looked it up since")
	e.c.Forget(transport.TxnCoordinator("id"), node)
	_, err = e.c.Coordinators(within(t), []string{"id"})
	require.NoError(t, err)
	require.Equal(t, 2, e.nw.Requests(findCoord))
	require.Empty(t, e.moved(), "found where it was")
}

func TestManyCallersShareTheConnections(t *testing.T) {
	e := start(t)
	var calls sync.WaitGroup
	for i := range 1000 {
		lane := e.c.Lane()
		calls.Go(func() {
			if r := lane.Do(within(t), initCall(fmt.Sprint("id-", i%100))); r.Err != nil {
				t.Error(r.Err)
			}
		})
	}
	calls.Wait()
	// Three brokers: a connection for each of two lanes and the look-ups, and
	// one to a seed for those three.
	require.LessOrEqual(t, e.nw.Conns(), 3*3+3)
	_, err := e.c.Coordinators(within(t), names(1))
	require.NoError(t, err)
}

// An EndTxn must not wait for what a broker owes to others.
func TestCoordinatorLanesDoNotWaitForOthers(t *testing.T) {
	e := start(t, kfake.NumBrokers(1))
	lane := e.c.Lane()
	require.NoError(t, lane.Do(within(t), initCall("id")).Err)

	producing := e.fault(produce, faultnet.DelayRequest)
	fetching := e.fault(int16(kmsg.Fetch), faultnet.DelayRequest)
	looking := e.fault(int16(kmsg.ListTransactions), faultnet.DelayRequest)
	done := make(chan struct{}, 3)
	e.c.ProduceLane().Produce(0, produceReq("t", 0), nil, func(kmsg.Response, bool, error) { done <- struct{}{} })
	for _, make := range []func() kmsg.Request{
		func() kmsg.Request { return kmsg.NewPtrFetchRequest() },
		func() kmsg.Request { return kmsg.NewPtrListTransactionsRequest() },
	} {
		go func() {
			e.c.Lookup().Do(within(t), transport.Call{Target: transport.Node(0), New: make, Give: func(transport.Result) bool { return true }})
			done <- struct{}{}
		}()
	}
	for _, held := range []*faultnet.Injection{producing, fetching, looking} {
		require.NoError(t, held.WaitHits(within(t), 1))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	r := lane.Do(ctx, endCall("id"))
	require.ErrorIs(t, r.Err, kerr.InvalidProducerIDMapping, "answered, while the others are still held")
	require.Empty(t, done)
	for _, held := range []*faultnet.Injection{producing, fetching, looking} {
		held.Remove()
	}
	for range 3 {
		<-done
	}
}

func TestOwnLane(t *testing.T) {
	e := start(t)
	own, release := e.c.OwnLane()
	require.NoError(t, own.Do(within(t), initCall("id")).Err)
	before := e.nw.Conns()
	require.NoError(t, e.c.Lane().Do(within(t), initCall("id")).Err)
	require.Greater(t, e.nw.Conns(), before, "connections of its own")

	held := e.fault(initProducerID, faultnet.Delay)
	res := make(chan transport.Result, 1)
	go func() { res <- own.Do(within(t), initCall("id")) }()
	require.NoError(t, held.WaitHits(within(t), 1))
	release()
	release()
	r := <-res
	require.ErrorIs(t, r.Err, kgo.ErrClientClosed)
	require.Equal(t, transport.ClassFatal, r.Class)
	require.True(t, r.Unanswered)
	held.Remove()
	r = own.Do(within(t), initCall("id"))
	require.ErrorIs(t, r.Err, kgo.ErrClientClosed)
	require.NoError(t, e.c.Lane().Do(within(t), initCall("id")).Err, "the other lanes go on")

	e.c.Close()
	own, release = e.c.OwnLane()
	require.ErrorIs(t, own.Do(within(t), initCall("id")).Err, kgo.ErrClientClosed)
	release()
}

func TestLanesGoRound(t *testing.T) {
	e := start(t)
	a, b := e.c.Lane(), e.c.Lane()
	require.NotSame(t, a, b)
	require.Same(t, a, e.c.Lane())
	p, q := e.c.ProduceLane(), e.c.ProduceLane()
	require.NotSame(t, p, q)
	require.Same(t, p, e.c.ProduceLane())
}
