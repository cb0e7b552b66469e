package transport_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/internal/wire"
)

func TestDoAsksTheCoordinator(t *testing.T) {
	e := start(t)
	r := e.c.Lane().Do(within(t), initCall("id"))
	require.NoError(t, r.Err)
	require.Equal(t, transport.ClassNone, r.Class)
	require.Equal(t, e.cluster.CoordinatorFor("id"), r.Node)
	require.Equal(t, int16(5), r.Version)
	require.Equal(t, 1, r.Attempts)
	require.True(t, r.Sent)
	require.False(t, r.Unanswered)
	require.IsType(t, (*kmsg.InitProducerIDResponse)(nil), r.Resp)
	require.Empty(t, e.retried())
}

func TestDoCapsTheVersion(t *testing.T) {
	e := start(t)
	for name, change := range map[string]func(*transport.Call){
		"capped":      func(c *transport.Call) { c.MaxVersion = 3 },
		"capped at 0": func(c *transport.Call) { c.Capped = true },
	} {
		t.Run(name, func(t *testing.T) {
			call := initCall("id")
			change(&call)
			r := e.c.Lane().Do(within(t), call)
			require.NoError(t, r.Err)
			require.Equal(t, call.MaxVersion, r.Version)
		})
	}
}

func TestDoRetriesALostAnswer(t *testing.T) {
	for name, lost := range map[string]faultnet.Action{
		"applied":       faultnet.CutAfter,
		"never arrived": faultnet.CutBefore,
		"still coming":  faultnet.CutLate,
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t)
			cut := e.fault(initProducerID, lost)
			r := e.c.Lane().Do(within(t), initCall("id"))
			require.NoError(t, r.Err)
			require.Equal(t, 1, cut.Hits())
			require.True(t, r.Sent)
			require.True(t, r.Unanswered, "one attempt has no answer")
			require.Equal(t, 2, r.Attempts)
			retries := e.retried()
			require.Len(t, retries, 1)
			require.True(t, retries[0].MaybeSent)
			require.Equal(t, initProducerID, retries[0].Key)
			require.Equal(t, e.cluster.CoordinatorFor("id"), retries[0].Node)
			require.Equal(t, 1, retries[0].Attempt)
			// It was the first request of its connection: kgo guesses at a
			// misconfiguration, but the broker may have applied it.
			var first *kgo.ErrFirstReadEOF
			require.ErrorAs(t, retries[0].Err, &first)
		})
	}
}

func TestDoRetriesARefusedWrite(t *testing.T) {
	e := start(t)
	refused := e.fault(initProducerID, faultnet.Refuse)
	r := e.c.Lane().Do(within(t), initCall("id"))
	require.NoError(t, r.Err)
	require.Equal(t, 1, refused.Hits())
}

func TestDoKeepsUnansweredOverLaterAnswers(t *testing.T) {
	e := start(t)
	e.fault(endTxn, faultnet.CutAfter)
	busy := e.fault(endTxn, faultnet.Answer, code(kerr.ConcurrentTransactions.Code), times(3))
	fenced := e.fault(endTxn, faultnet.Answer, code(kerr.ProducerFenced.Code))
	r := e.c.Lane().Do(within(t), endCall("id"))
	require.ErrorIs(t, r.Err, kerr.ProducerFenced)
	require.Equal(t, transport.ClassFenced, r.Class)
	require.Equal(t, kerr.ProducerFenced.Code, r.Code)
	require.True(t, r.Unanswered, "the first attempt still has no answer")
	require.Equal(t, 3, busy.Hits())
	require.Equal(t, 1, fenced.Hits())
	require.Equal(t, 5, r.Attempts)
}

func TestDoNotesAnswersThatLeaveTheEffectOpen(t *testing.T) {
	for _, open := range []*kerr.Error{
		kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NetworkException,
		kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress,
	} {
		t.Run(open.Message, func(t *testing.T) {
			e := start(t)
			once := e.fault(endTxn, faultnet.Answer, code(open.Code))
			e.fault(endTxn, faultnet.Answer, code(kerr.InvalidProducerEpoch.Code))
			r := e.c.Lane().Do(within(t), endCall("id"))
			require.Equal(t, 1, once.Hits())
			require.ErrorIs(t, r.Err, kerr.InvalidProducerEpoch)
			require.True(t, r.Unanswered)
		})
	}
	t.Run("an answer that is definite", func(t *testing.T) {
		e := start(t)
		e.fault(endTxn, faultnet.Answer, code(kerr.ConcurrentTransactions.Code))
		e.fault(endTxn, faultnet.Answer, code(kerr.InvalidTxnState.Code))
		r := e.c.Lane().Do(within(t), endCall("id"))
		require.ErrorIs(t, r.Err, kerr.InvalidTxnState)
		require.Equal(t, transport.ClassAbortable, r.Class)
		require.False(t, r.Unanswered)
	})
	t.Run("a code that nobody knows", func(t *testing.T) {
		e := start(t)
		e.fault(endTxn, faultnet.Answer, code(1234))
		r := e.c.Lane().Do(within(t), endCall("id"))
		require.ErrorIs(t, r.Err, kerr.UnknownServerError)
		require.ErrorContains(t, r.Err, "1234")
		require.Equal(t, transport.ClassUnknown, r.Class)
		require.True(t, r.Unanswered)
	})
}

func TestDoEndsWithItsContextBeforeTheWrite(t *testing.T) {
	e := start(t)
	// The coordinator is known, but its lane has no connection yet.
	_, err := e.c.Coordinators(within(t), []string{"id"})
	require.NoError(t, err)
	e.nw.BlackholeAll()
	lane := e.c.Lane()
	cause := errors.New("the caller has had enough")
	ctx, cancel := context.WithCancelCause(within(t))
	res := make(chan transport.Result, 1)
	go func() { res <- lane.Do(ctx, initCall("id")) }()
	require.Eventually(t, func() bool { return e.nw.Requests(metadata) > 0 || e.nw.Conns() > 0 }, 10*time.Second, time.Millisecond, "the lane dials")
	cancel(cause)
	r := <-res
	require.False(t, r.Sent)
	require.False(t, r.Unanswered)
	require.ErrorIs(t, r.Err, cause)
	require.ErrorIs(t, r.Err, context.Canceled)
	require.Equal(t, transport.ClassRetriable, r.Class)
	require.Zero(t, e.nw.Requests(initProducerID))
}

func TestDoEndsWithItsContextAfterTheWrite(t *testing.T) {
	e := start(t)
	held := e.fault(initProducerID, faultnet.Delay)
	cause := errors.New("the caller has had enough")
	ctx, cancel := context.WithCancelCause(within(t))
	res := make(chan transport.Result, 1)
	lane := e.c.Lane()
	go func() { res <- lane.Do(ctx, initCall("id")) }()
	require.NoError(t, held.WaitHits(within(t), 1))
	cancel(cause)
	r := <-res
	require.True(t, r.Sent)
	require.True(t, r.Unanswered)
	require.ErrorIs(t, r.Err, cause)
	require.Equal(t, transport.ClassUnknown, r.Class)
	require.Equal(t, 1, r.Attempts)

	// The connection lives on: others have requests in flight there.
	before := e.nw.Conns()
	held.Remove()
	r = lane.Do(within(t), initCall("id"))
	require.NoError(t, r.Err)
	require.Equal(t, before, e.nw.Conns())
}

func TestDoEndsWithItsContextBetweenAttempts(t *testing.T) {
	e := start(t)
	busy := e.fault(initProducerID, faultnet.Answer, code(kerr.ConcurrentTransactions.Code), times(faultnet.Forever))
	ctx, cancel := context.WithCancel(within(t))
	call := initCall("id")
	call.Backoff = func(attempt int, c int16) time.Duration {
		require.Equal(t, kerr.ConcurrentTransactions.Code, c)
		if attempt == 3 {
			cancel()
			return time.Hour
		}
		return 0
	}
	r := e.c.Lane().Do(ctx, call)
	require.ErrorIs(t, r.Err, context.Canceled)
	require.ErrorIs(t, r.Err, kerr.ConcurrentTransactions, "what kept it from succeeding")
	require.Equal(t, transport.ClassRetriable, r.Class)
	require.False(t, r.Unanswered)
	require.Equal(t, 3, busy.Hits())
}

func TestDoWithAContextThatHasEnded(t *testing.T) {
	e := start(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := e.c.Lane().Do(ctx, initCall("id"))
	require.ErrorIs(t, r.Err, context.Canceled)
	require.False(t, r.Sent)
	require.Zero(t, e.nw.Requests(faultnet.Any))
}

func TestDoOutlastsManyRetries(t *testing.T) {
	e := start(t, kgo.ConcurrentTransactionsBackoff(time.Microsecond))
	busy := e.fault(endTxn, faultnet.Answer, code(kerr.ConcurrentTransactions.Code), times(500))
	lost := e.fault(endTxn, faultnet.CutAfter)
	done := e.fault(endTxn, faultnet.Answer, code(kerr.InvalidTxnState.Code))
	r := e.c.Lane().Do(within(t), endCall("id"))
	require.ErrorIs(t, r.Err, kerr.InvalidTxnState)
	require.Equal(t, 500, busy.Hits())
	require.Equal(t, 1, lost.Hits())
	require.Equal(t, 1, done.Hits())
	require.Equal(t, 502, r.Attempts)
	retries := e.retried()
	require.Len(t, retries, 501)
	require.LessOrEqual(t, retries[500].Backoff, 50*time.Millisecond, "the first retry after a network error is quick, whatever came before")
}

func TestDoGivesUpWhenToldTo(t *testing.T) {
	e := start(t)
	busy := e.fault(initProducerID, faultnet.Answer, code(kerr.ConcurrentTransactions.Code), times(faultnet.Forever))
	call := initCall("id")
	call.Give = func(r transport.Result) bool {
		require.Equal(t, transport.ClassRetriable, r.Class)
		return r.Attempts == 4
	}
	r := e.c.Lane().Do(within(t), call)
	require.ErrorIs(t, r.Err, kerr.ConcurrentTransactions)
	require.Equal(t, 4, busy.Hits())
	require.Len(t, e.retried(), 3)
}

func TestDoTakesAnyAnswerWithoutACode(t *testing.T) {
	e := start(t)
	call := endCall("id")
	call.Code = nil
	r := e.c.Lane().Do(within(t), call)
	require.NoError(t, r.Err)
	require.NotZero(t, r.Resp.(*kmsg.EndTxnResponse).ErrorCode)
}

func TestDoPassesOnTheBrokersMessage(t *testing.T) {
	e := start(t)
	call := endCall("id")
	call.Code = func(kmsg.Response) (int16, string) { return kerr.InvalidTxnState.Code, "says the broker" }
	r := e.c.Lane().Do(within(t), call)
	require.ErrorIs(t, r.Err, kerr.InvalidTxnState)
	require.ErrorContains(t, r.Err, "says the broker")
}

func TestDoSendsNothingBelowTheVersionNeeded(t *testing.T) {
	e := start(t)
	for name, call := range map[string]transport.Call{
		"by the call": func() transport.Call {
			c := initCall("id")
			c.MinVersion = 6
			return c
		}(),
		"by the request": {
			Target: transport.TxnCoordinator("id"),
			New: func() kmsg.Request {
				req := wire.NewInitProducerIDRequest()
				req.TransactionalID = kmsg.StringPtr("id")
				req.KeepPreparedTxn = true
				return req
			},
		},
		"by the cap": func() transport.Call {
			c := initCall("id")
			c.MinVersion, c.MaxVersion = 5, 4
			return c
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			r := e.c.Lane().Do(within(t), call)
			require.ErrorIs(t, r.Err, kerr.UnsupportedVersion)
			require.Equal(t, transport.ClassUnsupported, r.Class)
			require.False(t, r.Sent)
			require.False(t, r.Unanswered)
			require.Zero(t, e.nw.Requests(initProducerID))
		})
	}
}

func TestDoSendsNothingThatTheBrokerDoesNotKnow(t *testing.T) {
	e := start(t)
	r := e.c.Lane().Do(within(t), transport.Call{
		Target: transport.TxnCoordinator("id"),
		New:    func() kmsg.Request { return wire.NewTxnHeartbeatRequest() },
	})
	require.ErrorIs(t, r.Err, kerr.UnsupportedVersion)
	require.Equal(t, transport.ClassUnsupported, r.Class)
	require.False(t, r.Sent)
	require.Zero(t, e.nw.Requests(wire.TxnHeartbeatKey))
}

func TestDoAsksAnyNode(t *testing.T) {
	e := start(t)
	call := transport.Call{
		Target: transport.AnyNode(),
		New: func() kmsg.Request {
			req := kmsg.NewPtrListTransactionsRequest()
			return req
		},
	}
	r := e.c.Lane().Do(within(t), call)
	require.NoError(t, r.Err)
	require.Equal(t, int32(-1), r.Node)
	// One that is down is passed over.
	for _, addr := range e.cluster.ListenAddrs()[1:] {
		e.nw.Down(addr)
	}
	r = e.c.Lane().Do(within(t), call)
	require.NoError(t, r.Err)
}

func TestDoReturnsToTheCallerWhenALeaderMoved(t *testing.T) {
	e := start(t)
	listOffsets := func(node int32) transport.Call {
		return transport.Call{
			Target: transport.Node(node),
			New: func() kmsg.Request {
				req := kmsg.NewPtrListOffsetsRequest()
				rt := kmsg.NewListOffsetsRequestTopic()
				rt.Topic = "t"
				rp := kmsg.NewListOffsetsRequestTopicPartition()
				rp.Timestamp = -1
				rt.Partitions = append(rt.Partitions, rp)
				req.Topics = append(req.Topics, rt)
				return req
			},
			Code: func(r kmsg.Response) (int16, string) {
				return r.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode, ""
			},
		}
	}
	leader := e.cluster.LeaderFor("t", 0)
	r := e.c.Lookup().Do(within(t), listOffsets(leader))
	require.NoError(t, r.Err)

	r = e.c.Lookup().Do(within(t), listOffsets((leader+1)%3))
	require.ErrorIs(t, r.Err, kerr.NotLeaderForPartition)
	require.Equal(t, transport.ClassRefresh, r.Class)
	require.Equal(t, 1, r.Attempts)

	addr, ok := e.nw.Addr(leader)
	require.True(t, ok)
	e.nw.Down(addr)
	r = e.c.Lookup().Do(within(t), listOffsets(leader))
	require.Error(t, r.Err)
	require.Equal(t, transport.ClassRefresh, r.Class, "a dead node may lead no more")

	r = e.c.Lookup().Do(within(t), listOffsets(77))
	require.Error(t, r.Err)
	require.Equal(t, transport.ClassRefresh, r.Class, "so may one that the cluster does not have")
	require.False(t, r.Sent)
}

func TestDoEndsWithTheClient(t *testing.T) {
	e := start(t)
	held := e.fault(initProducerID, faultnet.Delay)
	res := make(chan transport.Result, 1)
	lane := e.c.Lane()
	go func() { res <- lane.Do(within(t), initCall("id")) }()
	require.NoError(t, held.WaitHits(within(t), 1))
	e.c.Close()
	r := <-res
	require.ErrorIs(t, r.Err, kgo.ErrClientClosed)
	require.Equal(t, transport.ClassFatal, r.Class)
	require.True(t, r.Unanswered)

	r = lane.Do(within(t), initCall("id"))
	require.ErrorIs(t, r.Err, kgo.ErrClientClosed)
	require.False(t, r.Sent)
}

func TestDoEndsWithTheClientBetweenAttempts(t *testing.T) {
	e := start(t)
	e.fault(endTxn, faultnet.Answer, code(kerr.ConcurrentTransactions.Code), times(faultnet.Forever))
	call := endCall("id")
	call.Backoff = func(int, int16) time.Duration {
		go e.c.Close()
		return time.Hour
	}
	r := e.c.Lane().Do(within(t), call)
	require.ErrorIs(t, r.Err, kgo.ErrClientClosed)
	require.ErrorIs(t, r.Err, kerr.ConcurrentTransactions)
	require.Equal(t, transport.ClassFatal, r.Class)
}

// A cancelled Fetch would end its connection and every other Fetch there.
func TestDoDetachesAFetchFromItsContext(t *testing.T) {
	e := start(t)
	fetch := func(wait int32) transport.Call {
		return transport.Call{
			Target:     transport.Node(e.cluster.LeaderFor("t", 0)),
			MaxVersion: 11,
			New: func() kmsg.Request {
				req := kmsg.NewPtrFetchRequest()
				req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.ReplicaID = wait, 1, 1<<20, -1
				rt := kmsg.NewFetchRequestTopic()
				rt.Topic = "t"
				rp := kmsg.NewFetchRequestTopicPartition()
				rp.PartitionMaxBytes = 1 << 20
				rt.Partitions = append(rt.Partitions, rp)
				req.Topics = append(req.Topics, rt)
				return req
			},
		}
	}
	held := e.fault(int16(kmsg.Fetch), faultnet.Delay, times(2))
	ctx, cancel := context.WithCancel(within(t))
	first, second := make(chan transport.Result, 1), make(chan transport.Result, 1)
	go func() { first <- e.c.Lookup().Do(ctx, fetch(1)) }()
	require.NoError(t, held.WaitHits(within(t), 1))
	go func() { second <- e.c.Lookup().Do(within(t), fetch(1)) }()
	require.NoError(t, held.WaitHits(within(t), 2))
	cancel()
	r := <-first
	require.ErrorIs(t, r.Err, context.Canceled)
	require.True(t, r.Sent)
	held.Release()
	r = <-second
	require.NoError(t, r.Err)
	require.Equal(t, 1, r.Attempts, "the other Fetch was not cut off")
	require.False(t, r.Unanswered)
}

func TestDoEndsAtOnceWhereTryingAgainCannotHelp(t *testing.T) {
	for name, tc := range map[string]struct {
		opts  []any
		class transport.Class
	}{
		"a dialer that does not trust the broker": {
			opts: []any{kgo.Dialer(func(context.Context, string, string) (net.Conn, error) {
				return nil, untrustedError()
			})},
			class: transport.ClassDenied,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, tc.opts...)
			r := e.c.Lane().Do(within(t), initCall("id"))
			require.Error(t, r.Err)
			require.Equal(t, tc.class, r.Class, "%v", r.Err)
			require.False(t, r.Sent)
			require.LessOrEqual(t, r.Attempts, 1)
			require.NoError(t, within(t).Err())
		})
	}
}
