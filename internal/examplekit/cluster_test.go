package examplekit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/examplekit"
)

func open(t *testing.T) *examplekit.Cluster {
	t.Helper()
	c, err := examplekit.Open(t.Context(), "")
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestOpenReachesBrokersThatExist(t *testing.T) {
	embedded := open(t)
	require.True(t, embedded.Embedded())
	c, err := examplekit.Open(t.Context(), embedded.Brokers())
	require.NoError(t, err)
	defer c.Close()
	require.False(t, c.Embedded())
	require.NoError(t, c.CreateTopics(t.Context(), 2, nil, "a", "b"))
	require.ErrorContains(t, c.CreateTopics(t.Context(), 2, nil, "a"), "creating a")
	require.NoError(t, c.DeleteTopics(t.Context(), "a"))
	topics, err := embedded.Admin().ListTopics(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, topics.Names())
}

func TestOpenOfNoBroker(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := examplekit.Open(ctx, "127.0.0.1:1")
	require.ErrorContains(t, err, "127.0.0.1:1")
}

// write makes a transaction of one record in each partition and ends it.
func write(t *testing.T, c *examplekit.Cluster, topic, value string, end *kgo.TransactionEndTry) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(c.Opts(), kgo.TransactionalID(value), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	require.NoError(t, cl.BeginTransaction())
	for p := range int32(2) {
		require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Partition: p, Value: []byte(value)}).FirstErr())
	}
	if end != nil {
		require.NoError(t, cl.EndTransaction(t.Context(), *end))
	}
	return cl
}

func values(rs []*kgo.Record) []string {
	all := make([]string, len(rs))
	for i, r := range rs {
		all[i] = string(r.Value)
	}
	return all
}

func TestReadersSeeWhatIsTheirs(t *testing.T) {
	c := open(t)
	require.NoError(t, c.CreateTopics(t.Context(), 2, nil, "t"))
	got, err := c.ReadCommitted(t.Context(), "t")
	require.NoError(t, err)
	require.Empty(t, got)

	commit, abort := kgo.TryCommit, kgo.TryAbort
	write(t, c, "t", "committed", &commit)
	write(t, c, "t", "aborted", &abort)
	cl := write(t, c, "t", "open", nil)

	got, err = c.Visible(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, []string{"committed", "committed"}, values(got))
	got, err = c.ReadUncommitted(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, []string{"committed", "aborted", "open", "committed", "aborted", "open"}, values(got))

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = c.ReadCommitted(ctx, "t")
	require.ErrorContains(t, err, "waiting for the end of the transactions in t")

	require.NoError(t, cl.EndTransaction(t.Context(), kgo.TryCommit))
	got, err = c.ReadCommitted(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, []string{"committed", "open", "committed", "open"}, values(got))
}

func TestPulledPlugSendsNothing(t *testing.T) {
	c := open(t)
	var plug examplekit.Plug
	cl, err := kgo.NewClient(append(c.Opts(), plug.Dialer())...)
	require.NoError(t, err)
	defer cl.Close()
	require.NoError(t, cl.Ping(t.Context()))
	plug.Pull()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.Error(t, cl.Ping(ctx))
}

func TestUniqueNamesDiffer(t *testing.T) {
	a, b := examplekit.Unique("x"), examplekit.Unique("x")
	require.Regexp(t, "^x-[0-9a-f]{8}$", a)
	require.NotEqual(t, a, b)
}
