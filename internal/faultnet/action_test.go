package faultnet_test

import (
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
)

// onInit is a fault of InitProducerId.
func onInit(a faultnet.Action) faultnet.Fault {
	return faultnet.Fault{Key: initKey, Node: faultnet.Any, Action: a}
}

func TestCutBeforeKeepsTheRequestFromTheBroker(t *testing.T) {
	w := newWorld(t, 1)
	before := w.epoch()
	inj := w.net.Inject(onInit(faultnet.CutBefore))

	_, err := w.initTxn()
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 1, inj.Hits())
	require.NoError(t, inj.Err())
	got := w.last(initKey)
	require.Equal(t, faultnet.CutBefore, got.Action)
	require.False(t, got.Delivered)
	require.False(t, got.Served)
	require.False(t, got.Answered)

	require.Equal(t, before+1, w.epoch(), "the request was applied")
	require.Equal(t, 1, inj.Hits(), "the fault outlived its times")
	require.EqualValues(t, 2, w.seen[initKey].Load())
	require.Equal(t, 3, w.net.Requests(initKey))
}

func TestCutAfterAppliesTheRequest(t *testing.T) {
	w := newWorld(t, 1)
	before := w.epoch()
	inj := w.net.Inject(onInit(faultnet.CutAfter))

	_, err := w.initTxn()
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 1, inj.Hits())
	got := w.last(initKey)
	require.Equal(t, faultnet.CutAfter, got.Action)
	require.True(t, got.Delivered)
	require.True(t, got.Served)
	require.False(t, got.Answered)

	require.Equal(t, before+2, w.epoch(), "the request was not applied")
}

func TestRefuseFailsTheWriteAndTheNextDial(t *testing.T) {
	w := newWorld(t, 1)
	before := w.epoch()
	inj := w.net.Inject(onInit(faultnet.Refuse))

	_, err := w.initTxn()
	require.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = w.initTxn()
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.Equal(t, 1, inj.Hits())
	require.False(t, w.last(initKey).Delivered)

	require.Equal(t, before+1, w.epoch(), "a refused request was applied")
}

func TestRefuseOfAnyKeyCountsDials(t *testing.T) {
	w := newWorld(t, 1)
	addr := w.cluster.ListenAddrs()[0]
	inj := w.net.Inject(faultnet.Fault{Key: faultnet.Any, Node: faultnet.Any, Addr: addr, Times: 2, Action: faultnet.Refuse})
	for want := 1; want <= 2; want++ {
		_, err := w.net.Dial(w.ctx, "tcp", addr)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Equal(t, want, inj.Hits())
	}
	conn, err := w.net.Dial(w.ctx, "tcp", addr)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

func TestRemoveForgivesOwedDials(t *testing.T) {
	w := newWorld(t, 1)
	inj := w.net.Inject(onInit(faultnet.Refuse))
	_, err := w.initTxn()
	require.ErrorIs(t, err, syscall.ECONNRESET)
	inj.Remove()
	inj.Remove()
	w.epoch()
}

func TestCutLateDeliversAfterTheClientHasGoneOn(t *testing.T) {
	w := newWorld(t, 1)
	before := w.epoch()
	inj := w.net.Inject(onInit(faultnet.CutLate))

	_, err := w.initTxn()
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 1, inj.Hits())
	late := w.last(initKey)
	require.Equal(t, before+1, w.epoch(), "the late request was early")

	inj.Release()
	require.NoError(t, w.net.Wait(w.ctx, func(log []faultnet.Request) bool { return log[late.Seq-1].Served }))
	require.Equal(t, before+3, w.epoch(), "the late request was not applied")
}

func TestCutLateNeverArrivesOnceItsBrokerIsDown(t *testing.T) {
	w := newWorld(t, 1)
	before := w.epoch()
	inj := w.net.Inject(onInit(faultnet.CutLate))
	_, err := w.initTxn()
	require.ErrorIs(t, err, io.EOF)

	w.net.DownAll()
	w.net.UpAll()
	inj.Release()
	require.Equal(t, before+1, w.epoch())
}

func TestDelayHoldsTheAnswerUntilRelease(t *testing.T) {
	w := newWorld(t, 1)
	before := w.epoch()
	inj := w.net.Inject(onInit(faultnet.Delay))

	answer := w.epochLater()
	require.NoError(t, inj.WaitHits(w.ctx, 1))
	// Another client sees the effect while the answer is held.
	require.Eventually(t, func() bool { return w.seen[initKey].Load() == 2 }, longTime, time.Millisecond,
		"the broker never saw the delayed request")
	require.Empty(t, answer)
	require.False(t, w.last(initKey).Answered)

	inj.Release()
	require.Equal(t, before+1, <-answer)
	require.True(t, w.last(initKey).Answered)
}

func TestDelayHoldsTheAnswerForItsTime(t *testing.T) {
	w := newWorld(t, 1)
	w.epoch()
	f := onInit(faultnet.Delay)
	f.Delay = 50 * time.Millisecond
	inj := w.net.Inject(f)
	w.epoch()
	require.Equal(t, 1, inj.Hits())
	got := w.last(initKey)
	require.GreaterOrEqual(t, got.AnsweredAt.Sub(got.At), f.Delay)
}

func TestDelayRequestHoldsTheRequest(t *testing.T) {
	w := newWorld(t, 1)
	before := w.epoch()
	inj := w.net.Inject(onInit(faultnet.DelayRequest))

	answer := w.epochLater()
	require.NoError(t, inj.WaitHits(w.ctx, 1))
	other := w.newClient() // on connections of its own
	_, err := initRequest().RequestWith(w.ctx, other)
	require.NoError(t, err)
	require.EqualValues(t, 2, w.seen[initKey].Load(), "the held request was let through")
	require.False(t, w.last(initKey).Action == faultnet.DelayRequest && w.last(initKey).Delivered)

	inj.Release()
	require.Equal(t, before+2, <-answer)
}

func TestDelayRequestIsDroppedWithItsConnection(t *testing.T) {
	w := newWorld(t, 1)
	before := w.epoch()
	inj := w.net.Inject(onInit(faultnet.DelayRequest))
	conn, err := w.net.Dial(w.ctx, "tcp", w.cluster.ListenAddrs()[0])
	require.NoError(t, err)
	_, err = conn.Write(frameOf(1, initRequest()))
	require.NoError(t, err)
	require.Equal(t, 1, inj.Hits())
	require.NoError(t, conn.Close())
	inj.Release()
	require.Equal(t, before+1, w.epoch())
}

func TestDuplicateReachesTheBrokerTwice(t *testing.T) {
	w := newWorld(t, 1)
	before := w.epoch()
	inj := w.net.Inject(onInit(faultnet.Duplicate))

	first := w.epoch()
	require.Equal(t, 1, inj.Hits())
	require.Equal(t, before+1, first, "the client was given the second answer")
	require.Equal(t, before+3, w.epoch(), "on the same connection, the second answer was not dropped")
	require.EqualValues(t, 4, w.seen[initKey].Load())
	require.Equal(t, 3, w.net.Requests(initKey))
}

func TestAnswerKeepsTheRequestFromTheBroker(t *testing.T) {
	w := newWorld(t, 1)
	before := w.epoch()
	f := onInit(faultnet.Answer)
	f.Code = kerr.ConcurrentTransactions.Code
	f.Times = 2
	inj := w.net.Inject(f)
	for range 2 {
		resp, err := w.initTxn()
		require.NoError(t, err)
		require.Equal(t, f.Code, resp.ErrorCode)
		require.EqualValues(t, -1, resp.ProducerID)
	}
	require.Equal(t, 2, inj.Hits())
	got := w.last(initKey)
	require.True(t, got.Answered)
	require.False(t, got.Served)
	require.False(t, got.Delivered)
	answer, err := got.DecodeAnswer()
	require.NoError(t, err)
	require.Equal(t, f.Code, answer.(*kmsg.InitProducerIDResponse).ErrorCode)
	require.Equal(t, before+1, w.epoch())
}

func TestAnswerAfterAppliesTheRequest(t *testing.T) {
	w := newWorld(t, 1)
	before := w.epoch()
	f := onInit(faultnet.AnswerAfter)
	f.Code = kerr.CoordinatorLoadInProgress.Code
	inj := w.net.Inject(f)
	resp, err := w.initTxn()
	require.NoError(t, err)
	require.Equal(t, f.Code, resp.ErrorCode)
	require.Equal(t, 1, inj.Hits())
	require.True(t, w.last(initKey).Served)
	require.Equal(t, before+2, w.epoch())
}

func TestRewriteEditsTheBrokersAnswer(t *testing.T) {
	w := newWorld(t, 1)
	before := w.epoch()
	f := onInit(faultnet.Rewrite)
	f.Edit = func(req kmsg.Request, resp kmsg.Response) {
		if *req.(*kmsg.InitProducerIDRequest).TransactionalID == "txn" {
			resp.(*kmsg.InitProducerIDResponse).ProducerEpoch += 100
		}
	}
	inj := w.net.Inject(f)
	require.Equal(t, before+101, w.epoch())
	require.Equal(t, 1, inj.Hits())
	require.Equal(t, before+2, w.epoch())
}

func TestSkipTimesAndOrderOfFaults(t *testing.T) {
	w := newWorld(t, 1)
	first, second := onInit(faultnet.Answer), onInit(faultnet.Answer)
	first.Skip, first.Code = 1, 51
	second.Times, second.Code = faultnet.Forever, 15
	a, b := w.net.Inject(first), w.net.Inject(second)
	var codes []int16
	for range 4 {
		resp, err := w.initTxn()
		require.NoError(t, err)
		codes = append(codes, resp.ErrorCode)
	}
	require.Equal(t, []int16{15, 51, 15, 15}, codes)
	require.Equal(t, 1, a.Hits())
	require.Equal(t, 3, b.Hits())
	b.Remove()
	w.epoch()
}

func TestMatchSeesTheBody(t *testing.T) {
	w := newWorld(t, 1)
	f := onInit(faultnet.Answer)
	f.Code = 51
	f.Match = func(r faultnet.Request) bool {
		req, err := r.Decode()
		return err == nil && *req.(*kmsg.InitProducerIDRequest).TransactionalID == "other"
	}
	inj := w.net.Inject(f)
	w.epoch()
	require.Zero(t, inj.Hits())
	req := initRequest()
	req.TransactionalID = kmsg.StringPtr("other")
	resp, err := w.ask(req)
	require.NoError(t, err)
	require.EqualValues(t, 51, resp.(*kmsg.InitProducerIDResponse).ErrorCode)
	require.Equal(t, 1, inj.Hits())
}

func TestFaultsByNode(t *testing.T) {
	w := newWorld(t, 3)
	f := faultnet.Fault{Key: apiVersionsKey, Node: 1, Action: faultnet.Answer, Times: faultnet.Forever, Code: 41}
	inj := w.net.Inject(f)
	for node := range 3 {
		_, err := w.client.Broker(node).Request(w.ctx, kmsg.NewPtrListTransactionsRequest())
		if node == 1 {
			require.Error(t, err)
		} else {
			require.NoError(t, err)
		}
	}
	require.Positive(t, inj.Hits())
	for _, r := range w.net.Log() {
		if r.Action != 0 {
			require.EqualValues(t, 1, r.Node)
			addr, ok := w.net.Addr(1)
			require.True(t, ok)
			require.Equal(t, addr, r.Addr)
		}
	}
}

func TestFaultsByAddress(t *testing.T) {
	w := newWorld(t, 2)
	addrs := w.cluster.ListenAddrs()
	f := faultnet.Fault{Key: 66, Node: faultnet.Any, Addr: addrs[1], Times: faultnet.Forever, Action: faultnet.CutBefore}
	inj := w.net.Inject(f)
	_, err := w.client.Broker(0).Request(w.ctx, kmsg.NewPtrListTransactionsRequest())
	require.NoError(t, err)
	_, err = w.client.Broker(1).Request(w.ctx, kmsg.NewPtrListTransactionsRequest())
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 1, inj.Hits())
	require.Equal(t, addrs[1], w.last(66).Addr)
}

func TestUnknownActionIsReported(t *testing.T) {
	w := newWorld(t, 1)
	inj := w.net.Inject(faultnet.Fault{Key: faultnet.Any, Node: faultnet.Any})
	require.Error(t, inj.Err())
	w.epoch()
	require.Zero(t, inj.Hits())
}

func TestProduceSurvivesEachCut(t *testing.T) {
	for _, action := range []faultnet.Action{faultnet.CutBefore, faultnet.CutAfter, faultnet.Refuse, faultnet.Duplicate} {
		t.Run(action.String(), func(t *testing.T) {
			w := newWorld(t, 1)
			inj := w.net.Inject(faultnet.Fault{Key: produceKey, Node: faultnet.Any, Skip: 1, Times: 2, Action: action})
			cl := w.newClient(kgo.AlwaysRetryEOF(), kgo.MetadataMinAge(10*time.Millisecond),
				kgo.RecordPartitioner(kgo.ManualPartitioner()))
			for i := range 5 {
				r := &kgo.Record{Topic: "topic", Value: []byte{byte(i)}}
				require.NoError(t, cl.ProduceSync(w.ctx, r).FirstErr())
				require.EqualValues(t, i, r.Offset, "the idempotent producer lost or doubled a record")
			}
			require.Equal(t, 2, inj.Hits())
		})
	}
}

func TestErrorsLookLikeTheNetworks(t *testing.T) {
	w := newWorld(t, 1)
	conn, err := w.net.Dial(w.ctx, "tcp", w.cluster.ListenAddrs()[0])
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(-time.Second)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var timeout interface{ Timeout() bool }
	require.True(t, errors.As(err, &timeout) && timeout.Timeout())
}
