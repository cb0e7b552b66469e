package proof_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/txnsession"
)

// keysOf returns the keys that were sent on each connection.
func keysOf(log []faultnet.Request) map[uint64]map[kmsg.Key]bool {
	conns := make(map[uint64]map[kmsg.Key]bool)
	for _, r := range log {
		if conns[r.Conn] == nil {
			conns[r.Conn] = make(map[kmsg.Key]bool)
		}
		conns[r.Conn][kmsg.Key(r.Key)] = true
	}
	return conns
}

// carrying returns the connections that carried one of the keys.
func carrying(log []faultnet.Request, keys ...kmsg.Key) map[uint64]map[kmsg.Key]bool {
	conns := keysOf(log)
	maps.DeleteFunc(conns, func(_ uint64, has map[kmsg.Key]bool) bool {
		return !slices.ContainsFunc(keys, func(key kmsg.Key) bool { return has[key] })
	})
	return conns
}

// coordinatorKeys are what a session asks of coordinators.
var coordinatorKeys = []kmsg.Key{
	kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.EndTxn, kmsg.TxnOffsetCommit, kmsg.DescribeTransactions,
}

// requireApart asserts that the connections with Produce carry nothing else but
// what opens a connection, or tells who leads.
func requireApart(t *testing.T, log []faultnet.Request) {
	t.Helper()
	produce := carrying(log, kmsg.Produce)
	require.NotEmpty(t, produce)
	allowed := []kmsg.Key{kmsg.Produce, kmsg.Metadata, kmsg.ApiVersions, kmsg.SASLHandshake, kmsg.SASLAuthenticate}
	for conn, keys := range produce {
		for key := range keys {
			require.Contains(t, allowed, key, "connection %d carries %s", conn, key.Name())
		}
	}
}

// transactions runs a few of each kind: with records and offsets, committed and
// aborted, from two sessions at once.
func transactions(k *kit, nc *netclient.Client) {
	t := k.t
	for range 2 {
		s := k.ready(nc)
		p := k.producer(s)
		for i := range 4 {
			require.NoError(t, s.Begin(k.ctx()))
			for n := range 10 {
				p.Produce(k.ctx(), record(int32(n%2), "v"), nil)
			}
			require.NoError(t, s.SendOffsets(k.ctx(), map[string]map[int32]kgo.EpochOffset{
				k.topic: {0: {Epoch: -1, Offset: int64(i)}},
			}, txnsession.Unfenced(s.TransactionalID())))
			if i%2 == 0 {
				require.NoError(t, s.Commit(k.ctx()))
			} else {
				require.NoError(t, s.Abort(k.ctx()))
			}
		}
		require.NoError(t, p.Close(k.ctx()))
	}
}

func TestProducersSendNothingElse(t *testing.T) {
	both(t, 2, func(k *kit) {
		transactions(k, k.client())
		requireApart(k.t, k.net.Log())
	})
	// SASL comes before the first request of a connection, on these as well.
	t.Run("secured", func(t *testing.T) {
		k := onReal(t, kafkatest.Secured(), 2)
		nc := k.securedClient(kafkatest.SuperUser)
		transactions(k, nc)
		requireApart(t, k.net.Log())
		for conn, keys := range carrying(k.net.Log(), kmsg.Produce) {
			require.True(t, keys[kmsg.SASLAuthenticate], "connection %d", conn)
		}
	})
}

// A committer that ends what others have prepared sends no Produce and no Fetch,
// and not a single InitProducerId.
func TestACommitterSendsNoData(t *testing.T) {
	both(t, 1, func(k *kit) {
		t := k.t
		writers := k.client()
		var txns []txnsession.PreparedTxn
		for range 20 {
			s := k.ready(writers)
			k.open(s, k.producer(s), "v")
			txn, err := s.Prepare(k.ctx())
			require.NoError(t, err)
			txns = append(txns, txn)
		}
		k.net = newNet(t)
		c, err := txnsession.NewCommitter(k.client())
		require.NoError(t, err)
		require.NoError(t, c.Commit(k.ctx(), txns).FirstErr())
		require.Len(t, k.committed(), len(txns))

		sent := make(map[kmsg.Key]int)
		for _, r := range k.net.Log() {
			sent[kmsg.Key(r.Key)]++
		}
		require.Equal(t, len(txns), sent[kmsg.EndTxn])
		for key := range sent {
			require.Contains(t, []kmsg.Key{kmsg.ApiVersions, kmsg.Metadata, kmsg.FindCoordinator, kmsg.EndTxn}, key)
		}
	})
}
