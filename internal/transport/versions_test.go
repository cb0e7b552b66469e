package transport_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/transport"
)

// feature has brokers announce a finalized level; 0 removes it.
func feature(name string, level int16) func(*faultnet.Fault) {
	return edit(func(_ kmsg.Request, resp kmsg.Response) {
		r := resp.(*kmsg.ApiVersionsResponse)
		kept := r.FinalizedFeatures[:0]
		for _, f := range r.FinalizedFeatures {
			if f.Name != name {
				kept = append(kept, f)
			}
		}
		r.FinalizedFeatures = kept
		if level > 0 {
			f := kmsg.NewApiVersionsResponseFinalizedFeature()
			f.Name, f.MaxVersionLevel, f.MinVersionLevel = name, level, level
			r.FinalizedFeatures = append(r.FinalizedFeatures, f)
			r.FinalizedFeaturesEpoch = 1
		}
	})
}

// apiKey has brokers announce a key.
func apiKey(key, version int16) func(*faultnet.Fault) {
	return func(f *faultnet.Fault) {
		before := f.Edit
		f.Edit = func(req kmsg.Request, resp kmsg.Response) {
			if before != nil {
				before(req, resp)
			}
			r := resp.(*kmsg.ApiVersionsResponse)
			for i := range r.ApiKeys {
				if r.ApiKeys[i].ApiKey == key {
					r.ApiKeys[i].MaxVersion = version
					return
				}
			}
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = key, version
			r.ApiKeys = append(r.ApiKeys, k)
		}
	}
}

func (e *env) announce(more ...func(*faultnet.Fault)) *faultnet.Injection {
	return e.fault(apiVersions, faultnet.Rewrite, append([]func(*faultnet.Fault){times(faultnet.Forever)}, more...)...)
}

func TestTransactionVersion(t *testing.T) {
	e := start(t)
	v, err := e.c.TransactionVersion(within(t), "id", false)
	require.NoError(t, err)
	require.Equal(t, int16(2), v)

	// Not by what versions the broker offers.
	e.announce(feature("transaction.version", 0))
	v, err = e.c.TransactionVersion(within(t), "id", true)
	require.NoError(t, err)
	require.Zero(t, v)
	v, err = e.c.TransactionVersion(within(t), "id", false)
	require.NoError(t, err)
	require.Zero(t, v, "the fresh answer counts from now on")
}

func TestTransactionVersionUnderCaps(t *testing.T) {
	stable := func(key, v int16) *kversion.Versions {
		vs := kversion.Stable()
		vs.SetMaxKeyVersion(key, v)
		return vs
	}
	for name, tc := range map[string]struct {
		caps *kversion.Versions
		want int16
	}{
		"none":            {nil, 2},
		"Kafka 4.0":       {kversion.V4_0_0(), 2},
		"Kafka 3.9":       {kversion.V3_9_0(), 0},
		"Produce":         {stable(produce, 11), 0},
		"EndTxn":          {stable(endTxn, 4), 0},
		"TxnOffsetCommit": {stable(int16(kmsg.TxnOffsetCommit), 4), 0},
		"no EndTxn":       {stable(endTxn, -1), 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, kgo.MaxVersions(tc.caps))
			v, err := e.c.TransactionVersion(within(t), "", false)
			require.NoError(t, err)
			require.Equal(t, tc.want, v)
		})
	}
}

func TestVersionsAreForgottenWithTheConnection(t *testing.T) {
	e := start(t)
	node := e.cluster.CoordinatorFor("id")
	old := e.announce(feature("transaction.version", 1))
	lane := e.c.Lane()
	require.NoError(t, lane.Do(within(t), initCall("id")).Err)
	level := func() int16 {
		v, err := e.c.NodeVersions(within(t), node, false)
		require.NoError(t, err)
		return v.Feature("transaction.version")
	}
	require.Equal(t, int16(1), level())
	old.Remove()
	require.Equal(t, int16(1), level(), "cached")

	// The connection of another lane counts too.
	cut := e.fault(initProducerID, faultnet.CutAfter)
	require.NoError(t, lane.Do(within(t), initCall("id")).Err)
	require.Equal(t, 1, cut.Hits())
	require.Equal(t, int16(2), level())
}

func TestNodeVersions(t *testing.T) {
	caps := kversion.V3_9_0()
	caps.SetMaxKeyVersion(produce, 7)
	e := start(t, kgo.MaxVersions(caps))
	v, err := e.c.NodeVersions(within(t), 0, false)
	require.NoError(t, err)
	require.Equal(t, int16(7), v.MaxVersion(produce), "the user's cap")
	require.Equal(t, int16(4), v.MaxVersion(endTxn))
	require.Equal(t, int16(-1), v.MaxVersion(1095))
	require.Equal(t, int16(-1), v.MaxVersion(int16(kmsg.ShareFetch)), "the caps of 3.9 have no such key")
	require.Zero(t, v.Feature("no.such.feature"))

	_, err = e.c.NodeVersions(within(t), 99, false)
	require.Error(t, err)
	_, err = e.c.NodeVersions(within(t), -5, true)
	require.NoError(t, err, "any")

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e.fault(apiVersions, faultnet.Delay, times(faultnet.Forever))
	_, err = e.c.NodeVersions(ctx, 1, false)
	require.ErrorIs(t, err, context.Canceled)
	_, err = e.c.NodeVersions(ctx, 2, true)
	require.ErrorIs(t, err, context.Canceled)
}

func TestNodeVersionsAreAskedForOnce(t *testing.T) {
	e := start(t)
	held := e.fault(apiVersions, faultnet.Delay, atNode(0))
	_, err := e.c.Brokers(within(t)) // names the nodes
	require.NoError(t, err)
	var asking sync.WaitGroup
	for range 100 {
		asking.Go(func() {
			if _, err := e.c.NodeVersions(within(t), 0, false); err != nil {
				t.Error(err)
			}
		})
	}
	require.NoError(t, held.WaitHits(within(t), 1))
	held.Release()
	asking.Wait()
	asked := 0
	for _, r := range e.nw.Log() {
		if r.Key == apiVersions && r.Node == 0 {
			asked++
		}
	}
	// One is of the connection itself, and one of that to the node as a seed.
	require.LessOrEqual(t, asked, 3)
}

func TestNodeVersionsOfABrokerThatRefuses(t *testing.T) {
	e := start(t)
	_, err := e.c.NodeVersions(within(t), 0, false)
	require.NoError(t, err)
	e.fault(apiVersions, faultnet.Answer, code(kerr.InvalidRequest.Code))
	_, err = e.c.NodeVersions(within(t), 0, true)
	require.ErrorIs(t, err, kerr.InvalidRequest)
}

func TestTransactionVersionSurvivesFaults(t *testing.T) {
	for name, action := range map[string]faultnet.Action{
		"lost": faultnet.CutAfter, "cut": faultnet.CutBefore, "refused": faultnet.Refuse,
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t)
			_, err := e.c.TransactionVersion(within(t), "id", false)
			require.NoError(t, err)
			f := e.fault(apiVersions, action)
			v, err := e.c.TransactionVersion(within(t), "id", true)
			require.NoError(t, err)
			require.Equal(t, int16(2), v)
			require.Equal(t, 1, f.Hits())
		})
	}
	t.Run("until its context ends", func(t *testing.T) {
		e := start(t)
		_, err := e.c.Coordinators(within(t), []string{"id"})
		require.NoError(t, err)
		cut := e.fault(apiVersions, faultnet.CutBefore, times(faultnet.Forever))
		ctx, cancel := context.WithCancel(within(t))
		go func() {
			_ = cut.WaitHits(ctx, 4)
			cancel()
		}()
		_, err = e.c.TransactionVersion(ctx, "id", true)
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("until the client ends", func(t *testing.T) {
		e := start(t)
		e.c.Close()
		_, err := e.c.TransactionVersion(within(t), "id", false)
		require.ErrorIs(t, err, kgo.ErrClientClosed)
		_, err = e.c.TransactionVersion(within(t), "", false)
		require.ErrorIs(t, err, kgo.ErrClientClosed)
		_, err = e.c.TransactionVersion(within(t), "", true)
		require.ErrorIs(t, err, kgo.ErrClientClosed)
	})
}

func TestSupports(t *testing.T) {
	ask := func(t *testing.T, e *env, capability string) bool {
		t.Helper()
		ok, err := e.c.Supports(within(t), capability)
		require.NoError(t, err)
		return ok
	}
	all := []string{
		transport.CapTransactionsV2, transport.CapShareGroups, transport.CapTwoPhaseCommit,
		transport.CapKeepPrepared, transport.CapTxnHeartbeat, transport.CapTxnShareAcks,
	}
	for name, tc := range map[string]struct {
		opts     []any
		announce []func(*faultnet.Fault)
		want     []bool
	}{
		"a broker of today": {
			want: []bool{true, true, false, false, false, false},
		},
		"a broker of old": {
			opts: []any{kfake.MaxVersions(kversion.V2_8_0())},
			want: []bool{false, false, false, false, false, false},
		},
		"under caps": {
			opts:     []any{kgo.MaxVersions(kversion.V3_9_0())},
			announce: []func(*faultnet.Fault){apiKey(initProducerID, 6)},
			want:     []bool{false, false, false, false, false, false},
		},
		"unstable versions": {
			announce: []func(*faultnet.Fault){apiKey(initProducerID, 6)},
			want:     []bool{true, true, true, false, false, false},
		},
		"kept prepared": {
			announce: []func(*faultnet.Fault){feature("ktxn.txn.2pc", 1), apiKey(initProducerID, 6)},
			want:     []bool{true, true, true, true, false, false},
		},
		"keys without the features": {
			announce: []func(*faultnet.Fault){apiKey(1083, 0), apiKey(1093, 0), apiKey(1095, 0)},
			want:     []bool{true, true, false, false, false, false},
		},
		"heartbeat": {
			announce: []func(*faultnet.Fault){feature("ktxn.txn.heartbeat", 1), apiKey(1095, 0)},
			want:     []bool{true, true, false, false, true, false},
		},
		"features without the keys": {
			announce: []func(*faultnet.Fault){feature("ktxn.txn.heartbeat", 1)},
			want:     []bool{true, true, false, false, false, false},
		},
		"share acks": {
			announce: []func(*faultnet.Fault){feature("ktxn.share.txn", 1), apiKey(1083, 0), apiKey(1093, 0)},
			want:     []bool{true, true, false, false, false, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, tc.opts...)
			if tc.announce != nil {
				e.announce(tc.announce...)
			}
			var got []bool
			for _, capability := range all {
				got = append(got, ask(t, e, capability))
			}
			require.Equal(t, tc.want, got)
		})
	}

	t.Run("by every broker", func(t *testing.T) {
		e := start(t)
		_, err := e.c.Brokers(within(t))
		require.NoError(t, err)
		e.announce(apiKey(initProducerID, 6))
		require.True(t, ask(t, e, transport.CapTwoPhaseCommit))
		// One broker is rolled back, and with it its connections.
		e.nw.Reset()
		for node := range int32(2) {
			e.announce(apiKey(initProducerID, 6), atNode(node))
		}
		addr, ok := e.nw.Addr(2)
		require.True(t, ok)
		e.nw.Down(addr)
		e.nw.Up(addr)
		require.False(t, ask(t, e, transport.CapTwoPhaseCommit))
	})
	t.Run("noticed at once", func(t *testing.T) {
		e := start(t)
		require.False(t, ask(t, e, transport.CapTwoPhaseCommit))
		e.announce(apiKey(initProducerID, 6))
		require.True(t, ask(t, e, transport.CapTwoPhaseCommit))
	})
	t.Run("not known while a broker is down", func(t *testing.T) {
		e := start(t)
		_, err := e.c.Brokers(within(t))
		require.NoError(t, err)
		addr, ok := e.nw.Addr(1)
		require.True(t, ok)
		e.nw.Down(addr)
		_, err = e.c.Supports(within(t), transport.CapTransactionsV2)
		require.Error(t, err)
		ok, err = e.c.Supports(within(t), transport.CapTwoPhaseCommit)
		require.NoError(t, err)
		require.False(t, ok, "the others suffice for a no")
	})
	t.Run("asked again when an answer is lost", func(t *testing.T) {
		e := start(t)
		require.True(t, ask(t, e, transport.CapTransactionsV2))
		lost := e.fault(apiVersions, faultnet.CutAfter, atNode(1))
		require.True(t, ask(t, e, transport.CapTransactionsV2))
		require.Equal(t, 1, lost.Hits())
	})
	t.Run("by other proofs", func(t *testing.T) {
		e := start(t, func(o *transport.Options) {
			o.Drafts = map[string]transport.Proof{
				transport.CapTxnHeartbeat: {Feature: "transaction.version", MinLevel: 3, Keys: map[string]int16{"TxnHeartbeat": 95}},
				transport.CapTxnShareAcks: {Feature: "share.version", MinLevel: 3, Keys: map[string]int16{"TxnShareAcknowledge": 93}},
			}
		})
		require.Equal(t, int16(95), e.c.DraftKey("TxnHeartbeat"))
		require.Equal(t, int16(93), e.c.DraftKey("TxnShareAcknowledge"))
		require.Equal(t, int16(-1), e.c.DraftKey("AddShareAcksToTxn"))
		require.False(t, ask(t, e, transport.CapTxnHeartbeat))
		e.announce(feature("transaction.version", 3), apiKey(95, 0), apiKey(93, 0))
		require.True(t, ask(t, e, transport.CapTxnHeartbeat))
		require.False(t, ask(t, e, transport.CapTxnShareAcks))
	})
	t.Run("no such capability", func(t *testing.T) {
		e := start(t)
		_, err := e.c.Supports(within(t), "KIP-0")
		require.ErrorContains(t, err, "KIP-0")
	})
	t.Run("until its context ends", func(t *testing.T) {
		e := start(t)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := e.c.Supports(ctx, transport.CapShareGroups)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestBrokers(t *testing.T) {
	e := start(t)
	nodes, err := e.c.Brokers(within(t))
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 2}, nodes)
	_, _, err = e.cluster.AddNode(7, 0)
	require.NoError(t, err)
	nodes, err = e.c.Brokers(within(t))
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 2, 7}, nodes)
}

func TestDraftOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		capability string
		proof      transport.Proof
		text       string
	}{
		"unknown":    {"KIP-1", transport.Proof{}, "no such capability"},
		"settled":    {transport.CapShareGroups, transport.Proof{}, "settled"},
		"no feature": {transport.CapTxnHeartbeat, transport.Proof{Keys: map[string]int16{"TxnHeartbeat": 95}}, "prove nothing"},
		"level 0":    {transport.CapTxnHeartbeat, transport.Proof{Feature: "f", Keys: map[string]int16{"TxnHeartbeat": 95}}, "level 0"},
		"no key":     {transport.CapTxnHeartbeat, transport.Proof{Feature: "f", MinLevel: 1}, "no key"},
		"request":    {transport.CapTxnHeartbeat, transport.Proof{Feature: "f", MinLevel: 1, Keys: map[string]int16{"Beat": 95}}, "Beat"},
		"negative":   {transport.CapTxnHeartbeat, transport.Proof{Feature: "f", MinLevel: 1, Keys: map[string]int16{"TxnHeartbeat": -1}}, "negative"},
		"taken":      {transport.CapTxnHeartbeat, transport.Proof{Feature: "f", MinLevel: 1, Keys: map[string]int16{"TxnHeartbeat": 26}}, "EndTxn"},
		"taken too":  {transport.CapTxnHeartbeat, transport.Proof{Feature: "f", MinLevel: 1, Keys: map[string]int16{"TxnHeartbeat": 78}}, "ShareFetch"},
		"twice": {transport.CapTxnShareAcks, transport.Proof{Feature: "f", MinLevel: 1, Keys: map[string]int16{
			"TxnShareAcknowledge": 93, "AddShareAcksToTxn": 93,
		}}, "both"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := transport.New(transport.Options{
				CoordinatorLanes: 1, ProduceLanes: 1,
				Drafts: map[string]transport.Proof{tc.capability: tc.proof},
			})
			require.ErrorContains(t, err, tc.text)
		})
	}
}

// The rows of a draft hold whatever key it goes by.
func TestDraftsKeepTheirRows(t *testing.T) {
	e := start(t, func(o *transport.Options) {
		o.Drafts = map[string]transport.Proof{
			transport.CapTxnHeartbeat: {Feature: "f", MinLevel: 1, Keys: map[string]int16{"TxnHeartbeat": 95}},
		}
	})
	call := transport.Call{
		Target: transport.TxnCoordinator("id"),
		New:    func() kmsg.Request { return heartbeatAs{kmsg.NewPtrEndTxnRequest()} },
		Code:   func(kmsg.Response) (int16, string) { return kerr.InvalidTxnState.Code, "" },
	}
	e.nw.RegisterRequest(func() kmsg.Request { return heartbeatAs{kmsg.NewPtrEndTxnRequest()} })
	e.announce(apiKey(95, 0))
	e.fault(95, faultnet.Answer)
	r := e.c.Lane().Do(within(t), call)
	require.Equal(t, transport.ClassAbortable, r.Class, "%v", r.Err)
}

// heartbeatAs is some request under the key 95.
type heartbeatAs struct{ *kmsg.EndTxnRequest }

func (heartbeatAs) Key() int16        { return 95 }
func (heartbeatAs) MaxVersion() int16 { return 0 }
func (r heartbeatAs) ResponseKind() kmsg.Response {
	return heartbeatAnswer{r.EndTxnRequest.ResponseKind().(*kmsg.EndTxnResponse)}
}

type heartbeatAnswer struct{ *kmsg.EndTxnResponse }

func (heartbeatAnswer) Key() int16 { return 95 }
