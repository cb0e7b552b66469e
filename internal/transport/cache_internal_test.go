package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offline is a client that is never asked to reach anybody.
func offline(t *testing.T, opts ...kgo.Opt) *Client {
	t.Helper()
	c, err := New(Options{CoordinatorLanes: 1, ProduceLanes: 1, Kgo: opts})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func online(t *testing.T, opts ...kfake.Opt) (*Client, *kfake.Cluster) {
	t.Helper()
	cluster, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.SeedTopics(1, "t", "u"))...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return offline(t, kgo.SeedBrokers(cluster.ListenAddrs()...)), cluster
}

func TestVersionsAge(t *testing.T) {
	c, _ := online(t)
	first, err := c.NodeVersions(t.Context(), 0, false)
	require.NoError(t, err)
	again, err := c.NodeVersions(t.Context(), 0, false)
	require.NoError(t, err)
	require.Same(t, first, again)

	c.versions.mu.Lock()
	c.versions.nodes[0].at = time.Now().Add(-versionsAge)
	c.versions.mu.Unlock()
	again, err = c.NodeVersions(t.Context(), 0, false)
	require.NoError(t, err)
	require.NotSame(t, first, again)
}

// An answer that was on its way while the connection changed says nothing
// about who answers now.
func TestVersionsFromBeforeAReconnectAreNotKept(t *testing.T) {
	c, cluster := online(t)
	_, err := c.NodeVersions(t.Context(), 0, true)
	require.NoError(t, err)
	cluster.ControlKey(int16(kmsg.ApiVersions), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.versions.forget(0)
		return nil, nil, false
	})
	v, err := c.NodeVersions(t.Context(), 0, true)
	require.NoError(t, err)
	require.NotNil(t, v)
	c.versions.mu.Lock()
	defer c.versions.mu.Unlock()
	require.Nil(t, c.versions.nodes[0].v)
}

func TestEveryLaneForgetsVersionsWithItsConnections(t *testing.T) {
	c := offline(t)
	for name, event := range map[string]func(){
		"look-up connects":    func() { watcher{c}.OnBrokerConnect(kgo.BrokerMetadata{NodeID: 3}, 0, nil, nil) },
		"look-up disconnects": func() { watcher{c}.OnBrokerDisconnect(kgo.BrokerMetadata{NodeID: 3}, nil) },
		"lane connects":       func() { newForwarder(c, nil).OnBrokerConnect(kgo.BrokerMetadata{NodeID: 3}, 0, nil, nil) },
		"lane disconnects":    func() { newForwarder(c, nil).OnBrokerDisconnect(kgo.BrokerMetadata{NodeID: 3}, nil) },
	} {
		c.versions.entry(3).v = new(NodeVersions)
		event()
		require.Nil(t, c.versions.entry(3).v, name)
	}
}

func TestASeedMayBeAnyNode(t *testing.T) {
	c := offline(t)
	c.versions.entry(anyNode).v = new(NodeVersions)
	c.versions.entry(3).v = new(NodeVersions)
	c.versions.forget(-2147483648)
	require.Nil(t, c.versions.entry(anyNode).v)
	require.NotNil(t, c.versions.entry(3).v)
	c.versions.forget(3)
	require.Nil(t, c.versions.entry(3).v)
}

func TestKnownCoordinatorsAreBounded(t *testing.T) {
	c := offline(t)
	d := &c.coordinators.txn
	for i := range maxKnown + 10 {
		d.settle(fmt.Sprint(i), 1, nil)
	}
	require.LessOrEqual(t, len(d.known), maxKnown)
	require.Contains(t, d.known, fmt.Sprint(maxKnown+9))
}

func TestTopicsInUseAreRefreshed(t *testing.T) {
	c, cluster := online(t)
	for _, name := range []string{"t", "u"} {
		_, err := c.Topic(t.Context(), name)
		require.NoError(t, err)
	}
	tc := &c.topics
	tc.tick() // both were used
	<-c.RefreshTopics("t")
	require.NotNil(t, c.CachedTopic("t"))

	asked := make(chan []string, 10)
	cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		var names []string
		for _, rt := range req.(*kmsg.MetadataRequest).Topics {
			names = append(names, *rt.Topic)
		}
		asked <- names
		return nil, nil, false
	})
	old := c.CachedTopic("t")
	tc.tick() // only t was used since
	require.Equal(t, []string{"t"}, <-asked)
	require.Nil(t, c.CachedTopic("u"), "not used, hence dropped")
	require.Eventually(t, func() bool { return c.CachedTopic("t") != old }, 10*time.Second, time.Millisecond, "the answer is cached")

	tc.tick() // CachedTopic was a use
	<-asked
	<-c.RefreshTopics() // looks at nothing: no use
	<-asked
	tc.tick()
	require.Empty(t, tc.names())
	require.Nil(t, tc.timer, "nothing to refresh, no timer")
	require.Nil(t, c.CachedTopic("t"))

	// Use again begins it again.
	_, err := c.Topic(t.Context(), "t")
	require.NoError(t, err)
	require.NotNil(t, tc.timer)
}

func TestTopicsAreRefreshedAtTheAgeOfTheUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := offline(t, kgo.MetadataMaxAge(time.Minute))
		tc := &c.topics
		tc.mu.Lock()
		e := tc.entryLocked("t")
		e.used.Store(false)
		tc.mu.Unlock()
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		require.Len(t, tc.names(), 1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Empty(t, tc.names())
		c.Close()
		tc.mu.Lock()
		tc.entryLocked("t")
		tc.mu.Unlock()
		require.Nil(t, tc.timer, "not on a closed client")
	})
}

func TestRefreshesAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := offline(t, kgo.Dialer(func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no network")
		}))
		defer c.Close()
		tc := &c.topics
		tc.mu.Lock()
		tc.entryLocked("lately").asked = time.Now()
		tc.entryLocked("long ago").asked = time.Now().Add(-time.Hour)
		tc.entryLocked("never")
		tc.mu.Unlock()
		spacing := func(names ...string) time.Duration {
			tc.mu.Lock()
			tc.next = &topicLoad{names: make(map[string]struct{})}
			for _, name := range names {
				tc.next.names[name] = struct{}{}
			}
			tc.mu.Unlock()
			return tc.spacing()
		}
		require.Equal(t, topicSpacing, spacing("lately"))
		require.LessOrEqual(t, spacing("lately", "never"), time.Duration(0), "one that was not asked for lately is enough")
		require.LessOrEqual(t, spacing("lately", "long ago"), time.Duration(0))
		require.Zero(t, spacing())
		time.Sleep(topicSpacing)
		require.Zero(t, spacing("lately"))

		// And a load keeps it. Nobody can be reached, so it fails then.
		tc.mu.Lock()
		tc.entryLocked("lately").asked = time.Now()
		tc.next = nil
		tc.mu.Unlock()
		begun := time.Now()
		<-c.RefreshTopics("lately")
		require.GreaterOrEqual(t, time.Since(begun), topicSpacing)
	})
}

func TestDefaultWaits(t *testing.T) {
	c := offline(t)
	within := func(low, high time.Duration, key, code int16, streak int) {
		t.Helper()
		for range 20 {
			d := c.defaultWait(key, code, streak)
			require.GreaterOrEqual(t, d, low)
			require.LessOrEqual(t, d, high)
		}
	}
	busy := codeConcurrentTransactions
	within(400*time.Microsecond, 600*time.Microsecond, keyEndTxn, busy, 1)
	within(800*time.Microsecond, 1200*time.Microsecond, keyEndTxn, busy, 2)
	within(16*time.Millisecond, 24*time.Millisecond, keyEndTxn, busy, 7)
	within(16*time.Millisecond, 24*time.Millisecond, keyEndTxn, busy, 100_000)
	within(20*time.Millisecond, 20*time.Millisecond, keyInitProducerID, busy, 1)
	within(0, firstBackoff, keyEndTxn, codeNotCoordinator, 1)
	within(firstBackoff, maxBackoff, keyEndTxn, codeNotCoordinator, 2)
	within(maxBackoff, maxBackoff, keyEndTxn, 0, 9)

	c = offline(t, kgo.RetryBackoffFn(func(n int) time.Duration { return time.Duration(n) * time.Millisecond }),
		kgo.ConcurrentTransactionsBackoff(2*time.Millisecond))
	within(time.Millisecond, time.Millisecond, keyEndTxn, 0, 1)
	within(5*time.Millisecond, 5*time.Millisecond, keyEndTxn, 0, 5)
	within(1600*time.Microsecond, 2400*time.Microsecond, keyEndTxn, busy, 9)

	c = offline(t, kgo.RetryBackoffFn(func(int) time.Duration { return -time.Hour }))
	within(0, 0, keyEndTxn, 0, 3)
}

func TestStreaksAreOfOneKind(t *testing.T) {
	var s streak
	var got []int
	for _, code := range []int16{51, 51, 0, 0, 0, 51} {
		got = append(got, s.count(code))
	}
	require.Equal(t, []int{1, 2, 1, 2, 3, 1}, got)
}

func TestEndedError(t *testing.T) {
	cause, last := errors.New("had enough"), errors.New("no answer")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	err := ended(ctx, last)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, cause)
	require.ErrorIs(t, err, last)
	require.Equal(t, "had enough; the last try: no answer", err.Error())
	err = ended(ctx, nil)
	require.ErrorIs(t, err, cause)
	require.Equal(t, "had enough", err.Error())
	err = ended(ctx, fmt.Errorf("kgo: %w", context.Canceled))
	require.Equal(t, "had enough", err.Error(), "the end is no reason of its own")
}

func TestAnyBrokerComesToTheSeeds(t *testing.T) {
	c, _ := online(t)
	require.NoError(t, c.Ping(t.Context())) // discovers the broker
	cs := c.lookup.conns
	cl, err := cs.client()
	require.NoError(t, err)
	require.Equal(t, cl.DiscoveredBrokers()[0], cs.broker(cl, -1))
	cs.next()
	require.Equal(t, cl.SeedBrokers()[0], cs.broker(cl, -1))
	cs.next()
	require.Equal(t, cl.DiscoveredBrokers()[0], cs.broker(cl, -1))
}

func TestWhatIsRefusedOnSettingUpAConnection(t *testing.T) {
	c := offline(t)
	for err, want := range map[error]Class{
		kerr.SaslAuthenticationFailed: ClassDenied,
		kerr.UnsupportedSaslMechanism: ClassDenied,
		kerr.InvalidRequest:           ClassFatal,
		kerr.RequestTimedOut:          ClassRetriable,
	} {
		got, _ := c.whyNotSent(t.Context(), 0, keyEndTxn, fmt.Errorf("kgo: %w", err))
		require.Equal(t, want, got, "%v", err)
	}
}

// kgo's default caps are no choice of the user's: they must not hide the
// versions that two-phase commit needs.
func TestCapsOfTheLanes(t *testing.T) {
	c := offline(t)
	v, ok := c.laneV.LookupMaxKeyVersion(keyInitProducerID)
	require.True(t, ok)
	require.Equal(t, int16(initProducerIDMax), v)
	require.True(t, c.mayName(keyTxnHeartbeat))
	require.Nil(t, c.userV)

	c = offline(t, kgo.MaxVersions(nil))
	require.Nil(t, c.laneV)
	require.True(t, c.mayName(12345))
	require.True(t, c.allowsV2())
}
