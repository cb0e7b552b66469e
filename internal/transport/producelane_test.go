package transport_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
)

// outcome is what done was called with.
type outcome struct {
	resp      kmsg.Response
	maybeSent bool
	err       error
}

func collect(ch chan<- outcome) func(kmsg.Response, bool, error) {
	return func(resp kmsg.Response, maybeSent bool, err error) { ch <- outcome{resp, maybeSent, err} }
}

func TestProduce(t *testing.T) {
	e := start(t)
	lane := e.c.ProduceLane()
	done := make(chan outcome, 1)
	var written atomic.Int32
	req := produceReq("t", 0)
	req.Acks = 1 // of the request's own, not kgo's
	lane.Produce(e.cluster.LeaderFor("t", 0), req, func() { written.Add(1) }, collect(done))
	got := <-done
	require.NoError(t, got.err)
	require.True(t, got.maybeSent)
	require.IsType(t, (*kmsg.ProduceResponse)(nil), got.resp)
	require.Equal(t, int32(1), written.Load())
	for _, r := range e.nw.Log() {
		if r.Key == produce {
			sent, err := r.Decode()
			require.NoError(t, err)
			require.Equal(t, int16(1), sent.(*kmsg.ProduceRequest).Acks)
		}
	}

	// written is optional.
	lane.Produce(e.cluster.LeaderFor("t", 1), produceReq("t", 1), nil, collect(done))
	require.NoError(t, (<-done).err)
}

func TestProduceKeepsTheOrder(t *testing.T) {
	e := start(t)
	lane := e.c.ProduceLane()
	node := e.cluster.LeaderFor("t", 0)
	held := e.fault(produce, faultnet.Delay)
	done := make(chan outcome, 20)
	for i := range 20 {
		req := produceReq("t", 0)
		req.TimeoutMillis = int32(1000 + i)
		written := make(chan struct{})
		lane.Produce(node, req, func() { close(written) }, collect(done))
		<-written // although no answer has come
	}
	require.Equal(t, 1, held.Hits())
	require.Empty(t, done)
	held.Release()
	for range 20 {
		require.NoError(t, (<-done).err)
	}
	next := int32(1000)
	for _, r := range e.nw.Log() {
		if r.Key == produce {
			sent, err := r.Decode()
			require.NoError(t, err)
			require.Equal(t, next, sent.(*kmsg.ProduceRequest).TimeoutMillis)
			next++
		}
	}
	require.Equal(t, int32(1020), next)
}

func TestProduceFails(t *testing.T) {
	for name, tc := range map[string]struct {
		action faultnet.Action
		sent   bool
	}{
		"answer lost": {faultnet.CutAfter, true},
		"cut":         {faultnet.CutBefore, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t)
			f := e.fault(produce, tc.action)
			done := make(chan outcome, 1)
			var written atomic.Int32
			e.c.ProduceLane().Produce(e.cluster.LeaderFor("t", 0), produceReq("t", 0), func() { written.Add(1) }, collect(done))
			got := <-done
			require.Error(t, got.err)
			require.Nil(t, got.resp)
			require.Equal(t, tc.sent, got.maybeSent)
			require.Equal(t, int32(1), written.Load())
			require.Equal(t, 1, f.Hits())
		})
	}
	t.Run("no such node", func(t *testing.T) {
		e := start(t)
		done := make(chan outcome, 1)
		e.c.ProduceLane().Produce(77, produceReq("t", 0), func() { t.Error("written") }, collect(done))
		got := <-done
		require.Error(t, got.err)
		require.False(t, got.maybeSent)
	})
	t.Run("answered with an error", func(t *testing.T) {
		e := start(t)
		e.fault(produce, faultnet.Answer, code(kerr.NotLeaderForPartition.Code))
		done := make(chan outcome, 1)
		e.c.ProduceLane().Produce(e.cluster.LeaderFor("t", 0), produceReq("t", 0), nil, collect(done))
		got := <-done
		require.NoError(t, got.err, "judging answers is the caller's")
		require.Equal(t, kerr.NotLeaderForPartition.Code, got.resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
	})
}

func TestProduceFindsANodeAtItsNewAddress(t *testing.T) {
	e := start(t)
	lane := e.c.ProduceLane()
	done := make(chan outcome, 1)
	node := e.cluster.LeaderFor("t", 0)
	lane.Produce(node, produceReq("t", 0), nil, collect(done))
	require.NoError(t, (<-done).err)
	addr, ok := e.nw.Addr(node)
	require.True(t, ok)
	e.nw.Down(addr)
	require.NoError(t, e.cluster.RemoveNode(node))
	_, _, err := e.cluster.AddNode(node, 0)
	require.NoError(t, err)
	require.NoError(t, e.cluster.MoveTopicPartition("t", 0, node))
	ctx := within(t)
	for {
		lane.Produce(node, produceReq("t", 0), nil, collect(done))
		if got := <-done; got.err == nil {
			break
		}
		require.NoError(t, ctx.Err())
	}
}

func TestProduceEndsWithTheClient(t *testing.T) {
	e := start(t)
	lane := e.c.ProduceLane()
	held := e.fault(produce, faultnet.Delay)
	done := make(chan outcome, 4)
	for range 2 {
		written := make(chan struct{})
		lane.Produce(e.cluster.LeaderFor("t", 0), produceReq("t", 0), func() { close(written) }, collect(done))
		<-written
	}
	require.Equal(t, 1, held.Hits())
	e.c.Close()
	require.Len(t, done, 2, "Close waits for them")
	for range 2 {
		got := <-done
		require.ErrorIs(t, got.err, kgo.ErrClientClosed)
		require.True(t, got.maybeSent)
	}
	lane.Produce(0, produceReq("t", 0), func() { t.Error("written") }, collect(done))
	got := <-done
	require.ErrorIs(t, got.err, kgo.ErrClientClosed)
	require.False(t, got.maybeSent)
}
