package proof_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/internal/link"
	"github.com/ktxn/ktxn/internal/wire"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/txnsession"
)

// These tests hold one request and let another pass it. What is asserted is the
// order of events in the capture: when the call on session a has returned, the
// held request is on its way and has no answer.

// oneOfEach is a client with one connection of each kind to a node, so that
// whatever can wait for something else does.
func (k *kit) oneOfEach() *netclient.Client {
	k.t.Helper()
	return k.client(netclient.CoordinatorLanes(1), netclient.ProduceLanes(1))
}

// pair returns a session in a transaction with a record, and another one of the
// same client, in a transaction without.
func (k *kit) pair(nc *netclient.Client, opts ...txnsession.Opt) (a, b *txnsession.Session) {
	k.t.Helper()
	a, b = k.ready(nc, opts...), k.ready(nc)
	k.open(a, k.producer(a), "a")
	require.NoError(k.t, b.Begin(k.ctx()))
	return a, b
}

// last returns the newest request of a key that is of a transactional id, or of
// any if that is empty.
func (k *kit) last(key kmsg.Key, id string) faultnet.Request {
	k.t.Helper()
	var found faultnet.Request
	for _, r := range k.net.Log() {
		if r.Key == int16(key) && (id == "" || idOf(r) == id) {
			found = r
		}
	}
	require.NotZero(k.t, found.Seq, "no %s of %q", key.Name(), id)
	return found
}

// idOf returns the transactional id in a coordinator's request.
func idOf(r faultnet.Request) string {
	req, err := r.Decode()
	if err != nil {
		return ""
	}
	switch req := req.(type) {
	case *kmsg.EndTxnRequest:
		return req.TransactionalID
	case *wire.TxnHeartbeatRequest:
		return req.TransactionalID
	}
	return ""
}

// hold keeps the next EndTxn of an id from its broker, and what its connection
// carries afterwards behind it: a socket that stalls.
func (k *kit) hold(id string) *faultnet.Injection {
	return k.net.Inject(faultnet.Fault{
		Key: int16(kmsg.EndTxn), Node: faultnet.Any, Action: faultnet.DelayRequest,
		Match: func(r faultnet.Request) bool { return idOf(r) == id },
	})
}

func TestEndTxnDoesNotWaitBehindProduce(t *testing.T) {
	both(t, 1, func(k *kit) {
		t := k.t
		nc := k.oneOfEach()
		a, b := k.pair(nc)
		held := k.net.Inject(faultnet.Fault{Key: int16(kmsg.Produce), Node: faultnet.Any, Action: faultnet.Delay})
		k.producer(b).Produce(k.ctx(), record(0, "b"), nil)
		require.NoError(t, held.WaitHits(k.ctx(), 1))

		require.NoError(t, a.Commit(k.ctx()))
		require.True(t, k.last(kmsg.EndTxn, a.TransactionalID()).Served)
		require.True(t, k.last(kmsg.Produce, "").Delivered)
		require.False(t, k.last(kmsg.Produce, "").Answered)

		held.Release()
		require.NoError(t, b.Commit(k.ctx()))
		require.Equal(t, []string{"a", "b"}, values(k.committed()))
	})
}

// Here the broker itself holds back the producer: it is over its quota.
func TestEndTxnDoesNotWaitBehindAThrottledProducer(t *testing.T) {
	k := onReal(t, kafkatest.Latest(), 1)
	k.net = newNet(t, faultnet.WithDataBodies())
	id := kafkatest.UniqueID(t)
	nc := k.client(netclient.CoordinatorLanes(1), netclient.ProduceLanes(1), kgo.ClientID(id))
	a, b := k.pair(nc)
	k.quota(id, 1000)
	p := k.producer(b, kgo.ProducerBatchCompression(kgo.NoCompression()))
	for throttle := int32(0); throttle == 0; { // the quota takes a moment to be known
		require.NoError(t, p.ProduceSync(k.ctx(), record(0, string(make([]byte, 100_000)))).FirstErr())
		resp, err := k.last(kmsg.Produce, "").DecodeAnswer()
		require.NoError(t, err)
		throttle = resp.(*kmsg.ProduceResponse).ThrottleMillis
	}
	done := make(chan error, 1)
	p.Produce(k.ctx(), record(0, "throttled"), func(_ *kgo.Record, err error) { done <- err })

	// Several, so that the throttled request has surely got as far as it can.
	require.NoError(t, a.Commit(k.ctx()))
	for range 20 {
		k.commitOffsets(a)
	}
	select {
	case err := <-done:
		require.Fail(t, "the producer was not held back", "%v", err)
	default:
	}
	nc.Close() // or b's record is waited for
	require.Error(t, <-done)
}

// commitOffsets commits a transaction that has a group's offset and no record.
func (k *kit) commitOffsets(s *txnsession.Session) {
	k.t.Helper()
	require.NoError(k.t, s.Begin(k.ctx()))
	require.NoError(k.t, s.SendOffsets(k.ctx(), map[string]map[int32]kgo.EpochOffset{
		k.topic: {0: {Epoch: -1, Offset: 1}},
	}, txnsession.Unfenced(s.TransactionalID())))
	require.NoError(k.t, s.Commit(k.ctx()))
}

// The connection that Produce is to take does not come about.
func TestEndTxnDoesNotWaitBehindTheDialOfAProducer(t *testing.T) {
	both(t, 1, func(k *kit) {
		t := k.t
		dials := make(chan chan struct{}, 1) // each dial waits until its channel is closed
		var holding atomic.Bool
		k.net = newNet(t, faultnet.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if holding.Load() {
				goOn := make(chan struct{})
				dials <- goOn
				<-goOn
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}))
		nc := k.oneOfEach()
		a, b := k.ready(nc), k.ready(nc)
		k.commitOffsets(a) // all that a needs is connected
		require.NoError(t, b.Begin(k.ctx()))
		_, err := link.Transport(nc).Topic(k.ctx(), k.topic) // and what b needs, but for Produce
		require.NoError(t, err)

		holding.Store(true)
		k.producer(b).Produce(k.ctx(), record(0, "b"), nil)
		goOn := <-dials
		for range 5 {
			k.commitOffsets(a)
		}
		require.Zero(t, k.requests(kmsg.Produce))
		holding.Store(false)
		close(goOn)
		require.NoError(t, b.Commit(k.ctx()))
		require.Equal(t, []string{"b"}, values(k.committed()))
	})
}

// quota limits what a client id may produce, in bytes a second.
func (k *kit) quota(client string, rate float64) {
	k.t.Helper()
	cl, err := kgo.NewClient(append(k.real.Opts(), kgo.DisableClientMetrics())...)
	require.NoError(k.t, err)
	defer cl.Close()
	got, err := kadm.NewClient(cl).AlterClientQuotas(k.ctx(), []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &client}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: rate}},
	}})
	require.NoError(k.t, err)
	for _, q := range got {
		require.NoError(k.t, q.Err)
	}
}

func TestEndTxnDoesNotWaitBehindFetch(t *testing.T) {
	both(t, 1, func(k *kit) {
		t := k.t
		nc := k.oneOfEach()
		a, _ := k.pair(nc)
		// A Fetch of the client's own look-up connection, at the end of the
		// log: the broker holds it.
		req := kmsg.NewPtrFetchRequest()
		req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.Version = 30_000, 1<<20, 1<<20, 12
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic = k.topic
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.FetchOffset, rp.PartitionMaxBytes = 1, 1<<20
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		ctx, cancel := context.WithCancel(k.ctx())
		done := make(chan error, 1)
		go func() {
			_, err := nc.KgoClient().Broker(int(k.leader())).Request(ctx, fetchByName{req})
			done <- err
		}()
		require.NoError(t, k.net.Wait(ctx, func(log []faultnet.Request) bool {
			for _, r := range log {
				if r.Key == int16(kmsg.Fetch) && r.Delivered {
					return true
				}
			}
			return false
		}))

		require.NoError(t, a.Commit(k.ctx()))
		require.True(t, k.last(kmsg.EndTxn, a.TransactionalID()).Served)
		require.False(t, k.last(kmsg.Fetch, "").Served)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

type fetchByName struct{ *kmsg.FetchRequest }

func (fetchByName) MaxVersion() int16 { return 12 }

// leader is the node that leads the topic's first partition.
func (k *kit) leader() int32 {
	k.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.seeds...), kgo.DisableClientMetrics())
	require.NoError(k.t, err)
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopics(k.ctx(), k.topic)
	require.NoError(k.t, err)
	return topics[k.topic].Partitions[0].Leader
}

// Another session's EndTxn sits in a socket that has stalled. A session on
// another lane does not wait, nor does one that has a connection of its own, nor
// do its heartbeats; one on the same connection would.
func TestEndTxnDoesNotWaitBehindAStalledSocket(t *testing.T) {
	for name, c := range map[string]struct {
		lanes int
		opts  []txnsession.Opt
		waits bool
	}{
		"another lane":       {lanes: 2},
		"its own connection": {lanes: 1, opts: []txnsession.Opt{txnsession.OwnConnection()}},
		"the same lane":      {lanes: 1, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, 1, func(k *kit) {
				t := k.t
				k.announceHeartbeats()
				nc := k.client(netclient.CoordinatorLanes(c.lanes))
				a, b := k.pair(nc, c.opts...)
				require.NoError(t, k.producer(b).ProduceSync(k.ctx(), record(0, "b")).FirstErr())
				held := k.hold(b.TransactionalID())
				ended := make(chan error, 2)
				go func() { ended <- b.Commit(k.ctx()) }()
				require.NoError(t, held.WaitHits(k.ctx(), 1))

				if c.waits {
					go func() { ended <- a.Commit(k.ctx()) }()
					require.NoError(t, k.net.WaitRequests(k.ctx(), int16(kmsg.EndTxn), 2))
					require.False(t, k.last(kmsg.EndTxn, a.TransactionalID()).Delivered)
					held.Release()
					require.NoError(t, <-ended)
				} else {
					require.NoError(t, a.Heartbeat(k.ctx()))
					require.True(t, k.last(kmsg.Key(wire.TxnHeartbeatKey), a.TransactionalID()).Answered)
					require.NoError(t, a.Commit(k.ctx()))
					require.True(t, k.last(kmsg.EndTxn, a.TransactionalID()).Served)
					require.False(t, k.last(kmsg.EndTxn, b.TransactionalID()).Delivered)
					held.Release()
				}
				require.NoError(t, <-ended)
				require.Equal(t, []string{"a", "b"}, values(k.committed()))
			})
		})
	}
}

// announceHeartbeats makes every broker look like one that has TxnHeartbeat
// (KIP-1309), which no release has, and the network answer it.
func (k *kit) announceHeartbeats() {
	k.net.RegisterRequest(func() kmsg.Request { return wire.NewTxnHeartbeatRequest() })
	k.net.Inject(faultnet.Fault{
		Key: int16(kmsg.ApiVersions), Node: faultnet.Any, Times: faultnet.Forever, Action: faultnet.Rewrite,
		Edit: func(_ kmsg.Request, r kmsg.Response) {
			v := r.(*kmsg.ApiVersionsResponse)
			beat := kmsg.NewApiVersionsResponseApiKey()
			beat.ApiKey = wire.TxnHeartbeatKey
			v.ApiKeys = append(v.ApiKeys, beat)
			f := kmsg.NewApiVersionsResponseFinalizedFeature()
			f.Name, f.MinVersionLevel, f.MaxVersionLevel = "ktxn.txn.heartbeat", 1, 1
			v.FinalizedFeatures = append(v.FinalizedFeatures, f)
			v.FinalizedFeaturesEpoch = max(v.FinalizedFeaturesEpoch, 1)
		},
	})
	k.net.Inject(faultnet.Fault{
		Key: wire.TxnHeartbeatKey, Node: faultnet.Any, Times: faultnet.Forever, Action: faultnet.Answer,
		Edit: func(_ kmsg.Request, r kmsg.Response) { r.(*wire.TxnHeartbeatResponse).ErrorCode = 0 },
	})
}

// A whole node stalls, with the coordinator of one session: those whose
// coordinator is elsewhere go on, on the very same lane.
func TestEndTxnDoesNotWaitBehindAStalledNode(t *testing.T) {
	k := onReal(t, kafkatest.ThreeNodes(), 1)
	nc := k.oneOfEach()
	leader := k.leader()
	other := leader%3 + 1
	at := func(node int32) *txnsession.Session {
		s := k.session(nc, k.idAt(node))
		require.NoError(t, s.Initialize(k.ctx()))
		return s
	}
	a, b := at(leader), at(other)
	k.open(a, k.producer(a), "a")
	k.open(b, k.producer(b), "b")
	addr, ok := k.net.Addr(other)
	require.True(t, ok)
	k.net.Blackhole(addr)
	before := k.net.Requests(int16(kmsg.EndTxn))
	ended := make(chan error, 1)
	go func() { ended <- b.Commit(k.ctx()) }()
	require.NoError(t, k.net.WaitRequests(k.ctx(), int16(kmsg.EndTxn), before+1))

	require.NoError(t, a.Commit(k.ctx()))
	for i := range 3 { // and on: what it needs is not at that node
		k.open(a, k.producer(a), string(rune('x'+i)))
		require.NoError(t, a.Commit(k.ctx()))
	}
	require.False(t, k.last(kmsg.EndTxn, b.TransactionalID()).Served)
	k.net.Heal(addr)
	require.NoError(t, <-ended)
	require.ElementsMatch(t, []string{"a", "b", "x", "y", "z"}, values(k.committed()))
}

// idAt returns a transactional id whose coordinator is a node.
func (k *kit) idAt(node int32) string {
	k.t.Helper()
	for ctx := k.ctx(); ; {
		id := kafkatest.UniqueID(k.t)
		at, err := k.real.CoordinatorOf(ctx, id)
		if err == nil && int32(at) == node {
			return id
		}
		require.NoError(k.t, ctx.Err())
	}
}
