package kafkatest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

// client is a client that ends with the test.
func client(t *testing.T, opts []kgo.Opt, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(append([]kgo.Opt{kgo.DisableClientMetrics()}, opts...), more...)...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// bounded is the test's context with a deadline.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// finalized are the features that the cluster has finalized.
func finalized(t *testing.T, cl *kgo.Client) map[string]int16 {
	t.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1"
	resp, err := req.RequestWith(bounded(t), cl.SeedBrokers()[0])
	require.NoError(t, err)
	fs := map[string]int16{}
	for _, f := range resp.FinalizedFeatures {
		fs[f.Name] = f.MaxVersionLevel
	}
	return fs
}

// produce writes values to partition 0 and waits for the acknowledgement.
func produce(t *testing.T, cl *kgo.Client, topic string, values ...string) {
	t.Helper()
	for _, v := range values {
		require.NoError(t, cl.ProduceSync(bounded(t), &kgo.Record{Topic: topic, Value: []byte(v)}).FirstErr())
	}
}

func values(rs []*kgo.Record) []string {
	vs := []string{}
	for _, r := range rs {
		vs = append(vs, string(r.Value))
	}
	return vs
}

func TestSharedIsOneClusterThatNobodyDisturbs(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafkatest.Latest())
	require.Same(t, c, kafkatest.Shared(t, kafkatest.Latest()))
	require.True(t, c.Shared())
	topic := kafkatest.Topic(t, c, 3)
	cl := client(t, c.Opts(), kgo.ConsumeTopics(topic))
	produce(t, cl, topic, "one")
	fs := cl.PollFetches(bounded(t))
	require.NoError(t, fs.Err())
	require.Equal(t, []string{"one"}, values(fs.Records()))

	require.ErrorIs(t, c.Kill(1), kafkatest.ErrShared)
	require.ErrorIs(t, c.Stop(1), kafkatest.ErrShared)
	require.ErrorIs(t, c.Continue(1), kafkatest.ErrShared)
	require.ErrorIs(t, c.Restart(t.Context(), 1), kafkatest.ErrShared)
	c.Close()
	produce(t, cl, topic, "two")
}

func TestDefaultFeatures(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafkatest.Latest())
	fs := finalized(t, client(t, c.Opts()))
	require.EqualValues(t, 2, fs["transaction.version"])
	require.NotZero(t, fs["share.version"])
}

func TestOldRulesAreFinalized(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafkatest.OldRules())
	require.NotContains(t, finalized(t, client(t, c.Opts())), "transaction.version")
}

func TestKafka41ServesShareGroups(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafkatest.Kafka41())
	require.EqualValues(t, 1, finalized(t, client(t, c.Opts()))["share.version"])
}

func TestKafka39(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafkatest.Kafka39())
	fs := finalized(t, client(t, c.Opts()))
	require.NotContains(t, fs, "transaction.version")
	topic := kafkatest.Topic(t, c, 1)
	produce(t, client(t, c.Opts()), topic, "old")
	got, err := kafkatest.ReadUncommitted(bounded(t), c, topic)
	require.NoError(t, err)
	require.Equal(t, []string{"old"}, values(got))
}

func TestPreparedSpecExposesTwoPhaseCommit(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafkatest.Prepared())
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1"
	resp, err := req.RequestWith(bounded(t), client(t, c.Opts()).SeedBrokers()[0])
	require.NoError(t, err)
	for _, k := range resp.ApiKeys {
		if k.ApiKey == int16(kmsg.InitProducerID) {
			require.EqualValues(t, 6, k.MaxVersion)
			return
		}
	}
	t.Fatal("no InitProducerId")
}

func TestKillAndRestartKeepTheData(t *testing.T) {
	t.Parallel()
	c := kafkatest.Own(t, kafkatest.Latest())
	topic := kafkatest.Topic(t, c, 2)
	cl := client(t, c.Opts())
	produce(t, cl, topic, "before")

	require.NoError(t, c.Kill(1))
	require.Error(t, c.Kill(1), "it is dead already")
	dead, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.Error(t, cl.Ping(dead))

	require.NoError(t, c.Restart(bounded(t), 1))
	produce(t, cl, topic, "after")
	got, err := kafkatest.ReadCommitted(bounded(t), c, topic)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"before", "after"}, values(got))

	// A stopped node keeps its connections and answers nobody.
	require.NoError(t, c.Stop(1))
	mute, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, cl.Ping(mute), context.DeadlineExceeded)
	require.NoError(t, c.Continue(1))
	produce(t, cl, topic, "later")

	require.Error(t, c.Kill(2), "there is one node")
	c.Close()
	require.Error(t, c.Continue(1))
}

func TestStartRefusesWhatNoClusterCanBe(t *testing.T) {
	for name, spec := range map[string]kafkatest.Spec{
		"version":             {Version: "latest"},
		"too old":             {Version: "3.8.0"},
		"two nodes":           {Version: "4.4.0", Nodes: 2},
		"transaction.version": {Version: "3.9.1", TransactionVersion: 2},
		"share.version":       {Version: "4.0.0", ShareVersion: 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kafkatest.Start(t.Context(), spec)
			require.Error(t, err)
			require.NotErrorAs(t, err, new(*kafkatest.MissingError))
		})
	}
}

func TestStartSaysWhyItFailed(t *testing.T) {
	t.Parallel()
	spec := kafkatest.Latest()
	spec.Overrides = "listeners=CLIENT://127.0.0.1:1"
	_, err := kafkatest.Start(bounded(t), spec)
	skipWithoutTools(t, err)
	require.ErrorContains(t, err, "controller.listener.names")

	spec.Overrides = "metric.reporters=nosuch.Reporter"
	_, err = kafkatest.Start(bounded(t), spec)
	require.ErrorContains(t, err, "node 1 logged:")
	require.ErrorContains(t, err, "nosuch.Reporter")
}

func TestStartWithoutTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := kafkatest.Start(t.Context(), kafkatest.Latest())
	var missing *kafkatest.MissingError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, "java", missing.Tool)
	require.ErrorAs(t, kafkatest.Available(t.Context()), &missing)
}

// skipWithoutTools skips a test that starts a cluster by itself.
func skipWithoutTools(t *testing.T, err error) {
	t.Helper()
	if missing, ok := errors.AsType[*kafkatest.MissingError](err); ok {
		t.Skipf("%v; install it, then: go test -run '^%s$'", missing, t.Name())
	}
}
