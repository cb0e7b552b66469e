package wire_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/internal/wire"
)

// eachBroker runs fn against the fake and against a real broker.
func eachBroker(t *testing.T, fn func(t *testing.T, opts []kgo.Opt, topic string)) {
	t.Run("kfake", func(t *testing.T) {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "topic"))
		require.NoError(t, err)
		t.Cleanup(c.Close)
		fn(t, []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, "topic")
	})
	t.Run("kafka", func(t *testing.T) {
		c := kafkatest.Shared(t, kafkatest.Prepared())
		fn(t, c.Opts(), kafkatest.Topic(t, c, 1))
	})
}

// openTxn is a transaction that is open on the one broker of a cluster.
type openTxn struct {
	t     *testing.T
	cl    *kgo.Client
	to    *kgo.Broker
	id    string
	pid   int64
	epoch int16
}

// newOpenTxn opens a transaction; its client sends no InitProducerId above
// maxInit.
func newOpenTxn(t *testing.T, opts []kgo.Opt, topic string, maxInit int16) *openTxn {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(22, maxInit)
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.DisableClientMetrics(), kgo.MaxVersions(versions)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	o := &openTxn{t: t, cl: cl, to: cl.SeedBrokers()[0], id: kafkatest.UniqueID(t)}

	find := kmsg.NewPtrFindCoordinatorRequest() // makes a fresh broker ready for transactions
	find.CoordinatorType, find.CoordinatorKey, find.CoordinatorKeys = 1, o.id, []string{o.id}
	require.Eventually(t, func() bool {
		kresp, err := cl.Request(t.Context(), find)
		if err != nil {
			return false
		}
		found, ok := kresp.(*kmsg.FindCoordinatorResponse)
		return ok && len(found.Coordinators) == 1 && found.Coordinators[0].ErrorCode == 0
	}, 30*time.Second, 50*time.Millisecond, "no transaction coordinator")
	resp := o.init(func(*wire.InitProducerIDRequest) {})
	require.NoError(t, kerr.ErrorForCode(resp.ErrorCode))
	o.pid, o.epoch = resp.ProducerID, resp.ProducerEpoch
	o.open(topic)
	return o
}

// open adds topic to the transaction.
func (o *openTxn) open(topic string) {
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = o.id, o.pid, o.epoch
	add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: topic, Partitions: []int32{0}}}
	kresp, err := wire.Send(o.t.Context(), o.to, wire.Track(add).CapVersion(3))
	require.NoError(o.t, err)
	added, ok := kresp.(*kmsg.AddPartitionsToTxnResponse)
	require.True(o.t, ok)
	require.EqualValues(o.t, 3, added.Version)
	require.NoError(o.t, kerr.ErrorForCode(added.Topics[0].Partitions[0].ErrorCode))
	o.requireOpen()
}

// init sends an InitProducerId until the coordinator has time for it.
func (o *openTxn) init(set func(*wire.InitProducerIDRequest)) (resp *wire.InitProducerIDResponse) {
	var err error
	require.Eventually(o.t, func() bool {
		var kresp kmsg.Response
		if kresp, err = wire.Send(o.t.Context(), o.to, wire.Track(initRequest(o.id, set))); err != nil {
			return true
		}
		resp, _ = kresp.(*wire.InitProducerIDResponse)
		err := kerr.ErrorForCode(resp.ErrorCode)
		return !kerr.IsRetriable(err) && !errors.Is(err, kerr.ConcurrentTransactions)
	}, 30*time.Second, 20*time.Millisecond, "the coordinator never has time")
	require.NoError(o.t, err)
	return resp
}

func (o *openTxn) state() kmsg.DescribeTransactionsResponseTransactionState {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{o.id}
	// The connection may have just been closed because of an empty body.
	kresp, err := o.to.RetriableRequest(o.t.Context(), req)
	require.NoError(o.t, err)
	resp, ok := kresp.(*kmsg.DescribeTransactionsResponse)
	require.True(o.t, ok)
	require.Len(o.t, resp.TransactionStates, 1)
	return resp.TransactionStates[0]
}

func (o *openTxn) requireOpen() {
	s := o.state()
	require.Equal(o.t, "Ongoing", s.State)
	require.Equal(o.t, o.pid, s.ProducerID)
	require.Equal(o.t, o.epoch, s.ProducerEpoch)
	require.Len(o.t, s.Topics, 1)
}

func TestUnreadableInitLeavesTheTransactionOpen(t *testing.T) {
	sends := []struct {
		name string
		do   func(*openTxn, *wire.InitProducerIDRequest) error
	}{
		{"without a body", func(o *openTxn, req *wire.InitProducerIDRequest) error {
			_, err := req.RequestWith(o.t.Context(), o.to)
			return err
		}},
		{"tracked, without a body", func(o *openTxn, req *wire.InitProducerIDRequest) error {
			tracked := wire.Track(req)
			_, err := o.to.Request(o.t.Context(), tracked)
			require.True(o.t, tracked.TooOld())
			require.False(o.t, tracked.Written())
			return err
		}},
		{"not sent", func(o *openTxn, req *wire.InitProducerIDRequest) error {
			_, err := wire.Send(o.t.Context(), o.to, wire.Track(req))
			return err
		}},
	}
	sets := []struct {
		name string
		do   func(*wire.InitProducerIDRequest)
	}{
		{"keep prepared", keepPrepared},
		{"2pc", func(v *wire.InitProducerIDRequest) { v.Enable2Pc = true }},
		{"session timeout", func(v *wire.InitProducerIDRequest) { v.TransactionSessionTimeoutMillis = 1000 }},
	}
	eachBroker(t, func(t *testing.T, opts []kgo.Opt, topic string) {
		for maxInit := range int16(6) {
			o := newOpenTxn(t, opts, topic, maxInit)
			for _, send := range sends {
				for _, set := range sets {
					what := fmt.Sprintf("v%d, %s, %s", maxInit, send.name, set.name)
					req := initRequest(o.id, set.do)
					require.Error(t, send.do(o, req), what)
					require.True(t, req.Unreadable(), what)
					require.Equal(t, maxInit, req.GetVersion(), what)
					o.requireOpen()
				}
			}
		}
	})
}

// The danger is real: the same request with its flag dropped ends the
// transaction.
func TestPlainInitEndsTheTransaction(t *testing.T) {
	eachBroker(t, func(t *testing.T, opts []kgo.Opt, topic string) {
		o := newOpenTxn(t, opts, topic, 5)
		resp := o.init(func(*wire.InitProducerIDRequest) {})
		require.NoError(t, kerr.ErrorForCode(resp.ErrorCode))
		require.NotEqual(t, "Ongoing", o.state().State)
	})
}

// A real broker reads v6 as we write it, and we read its answer.
func TestKafkaTakesV6(t *testing.T) {
	c := kafkatest.Shared(t, kafkatest.Prepared())
	topic := kafkatest.Topic(t, c, 1)

	o := newOpenTxn(t, c.Opts(), topic, 6)
	resp := o.init(keepPrepared)
	require.EqualValues(t, 6, resp.Version)
	require.ErrorIs(t, kerr.ErrorForCode(resp.ErrorCode), kerr.UnsupportedVersion, "Kafka 4.4 has the flag but not the deed")
	o.requireOpen()

	resp = o.init(func(v *wire.InitProducerIDRequest) { v.Enable2Pc = true })
	require.EqualValues(t, 6, resp.Version)
	require.NoError(t, kerr.ErrorForCode(resp.ErrorCode))
	require.Equal(t, o.pid, resp.ProducerID)
	require.Greater(t, resp.ProducerEpoch, o.epoch)
	require.EqualValues(t, -1, resp.OngoingTxnProducerID)
	require.EqualValues(t, -1, resp.OngoingTxnProducerEpoch)
	require.EqualValues(t, 1<<31-1, o.state().TimeoutMillis, "no time limit: the flag was read as such")
}
