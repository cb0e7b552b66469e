package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

// transactional returns a producer with a session of its own.
func (k *kit) transactional(opts ...kgo.ProducerOpt) *producer.Producer {
	k.t.Helper()
	p, err := producer.NewTransactional(k.nc, k.id(), append([]kgo.ProducerOpt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		producer.SessionOpts(txnsession.TransactionTimeout(30 * time.Second)),
	}, opts...)...)
	require.NoError(k.t, err)
	k.t.Cleanup(func() {
		ctx, cancel := contextFor(5 * time.Second)
		defer cancel()
		_ = p.Close(ctx)
	})
	return p
}

func TestProducerWithItsOwnSession(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		p := k.transactional()
		require.NoError(t, p.Initialize(k.ctx()))
		require.NoError(t, p.Begin(k.ctx()))
		require.NoError(t, p.ProduceSync(k.ctx(), k.rec(0, "committed")).FirstErr())
		require.NoError(t, p.SendOffsets(k.ctx(), map[string]map[int32]kgo.EpochOffset{k.topic: {0: {Epoch: -1, Offset: 1}}}, txnsession.Unfenced(k.id())))
		require.NoError(t, p.Commit(k.ctx()))
		require.NoError(t, p.Begin(k.ctx()))
		require.NoError(t, p.ProduceSync(k.ctx(), k.rec(0, "aborted")).FirstErr())
		require.NoError(t, p.Abort(k.ctx()))
		require.NoError(t, p.Begin(k.ctx()))
		p.Produce(k.ctx(), k.rec(1, "prepared"), nil)
		prepared, err := p.Prepare(k.ctx())
		require.NoError(t, err)
		require.Equal(t, txnsession.StatePrepared, p.TransactionSession().State())
		v, err := p.Complete(k.ctx(), prepared)
		require.NoError(t, err)
		require.Equal(t, txnsession.Committed, v)
		require.NoError(t, p.Close(k.ctx()))
		require.NoError(t, p.Close(k.ctx()))
		require.Equal(t, txnsession.StateClosed, p.TransactionSession().State())
		require.ErrorIs(t, p.ProduceSync(k.ctx(), k.rec(0, "late")).FirstErr(), txnsession.ErrClosed)
		require.Equal(t, [][]string{{"committed"}, {"prepared"}, nil, nil}, k.committed())
	})
}

// Closing it in mid-transaction aborts, and tells every promise.
func TestCloseInMidTransaction(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		p := k.transactional(kgo.ManualFlushing())
		require.NoError(t, p.Initialize(k.ctx()))
		require.NoError(t, p.Begin(k.ctx()))
		require.NoError(t, p.ProduceSync(k.ctx(), k.rec(0, "a")).FirstErr())
		var out promised
		p.Produce(k.ctx(), k.rec(0, "b"), out.promise)
		require.NoError(t, p.Close(k.ctx()))
		out.require(t, 1, txnsession.ErrClosed)
		require.Equal(t, make([][]string, parts), k.committed())
	})
}

// A producer whose session is another's moves no transaction.
func TestSessionIsNotTheProducers(t *testing.T) {
	k := embedded.kit(t)
	s := k.session()
	p := k.producer(s)
	require.Same(t, s, p.TransactionSession())
	_, prepareErr := p.Prepare(k.ctx())
	_, completeErr := p.Complete(k.ctx(), txnsession.PreparedTxn{})
	for _, err := range []error{
		p.Initialize(k.ctx()), p.Begin(k.ctx()), p.Commit(k.ctx()), p.Abort(k.ctx()),
		p.SendOffsets(k.ctx(), nil, txnsession.GroupMetadata{}), prepareErr, completeErr,
	} {
		require.ErrorIs(t, err, txnsession.ErrState)
		var e *txnsession.Error
		require.ErrorAs(t, err, &e)
	}
	require.Equal(t, txnsession.StateReady, s.State())
	require.NoError(t, p.Close(k.ctx()))
	require.Equal(t, txnsession.StateReady, s.State(), "it stays open")
}

// Several producers of a session write to the same partitions, and what one of
// them has not sent when it is closed fails the transaction for all.
func TestSeveralProducersOfASession(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		s := k.session()
		a, b := k.producer(s), k.producer(s, kgo.DefaultProduceTopic(k.topic))
		require.NoError(t, s.Begin(k.ctx()))
		var out promised
		for _, v := range numbered("v", 500) {
			a.Produce(k.ctx(), k.rec(0, "a"+v), out.promise)
			b.Produce(k.ctx(), &kgo.Record{Value: []byte("b" + v)}, out.promise)
		}
		require.NoError(t, a.Flush(k.ctx()))
		require.Zero(t, b.BufferedProduceRecords())
		require.Zero(t, b.BufferedProduceBytes())
		require.NoError(t, a.Close(k.ctx()))
		require.ErrorIs(t, a.ProduceSync(k.ctx(), k.rec(0, "late")).FirstErr(), txnsession.ErrClosed)
		require.NoError(t, b.ProduceSync(k.ctx(), k.rec(1, "last")).FirstErr())
		require.NoError(t, s.Commit(k.ctx()))
		out.require(t, 1000, nil)
		got := k.committed()
		require.Len(t, got[0], 1000)
		require.Equal(t, []string{"last"}, got[1])
	})
}
