package transport_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/transport"
)

func TestNewRefusesBadOptions(t *testing.T) {
	for name, o := range map[string]transport.Options{
		"no coordinator lanes": {ProduceLanes: 1},
		"no produce lanes":     {CoordinatorLanes: 1},
		"what kgo refuses":     {CoordinatorLanes: 1, ProduceLanes: 1, Kgo: []kgo.Opt{kgo.SeedBrokers()}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := transport.New(o)
			require.Error(t, err)
		})
	}
}

func TestAnIdleClientDoesNotDial(t *testing.T) {
	var dials atomic.Int32
	c, err := transport.New(transport.Options{
		CoordinatorLanes: 4, ProduceLanes: 4,
		Kgo: []kgo.Opt{kgo.Dialer(func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			return nil, errors.New("no network")
		})},
	})
	require.NoError(t, err)
	c.Lane()
	c.ProduceLane()
	_, release := c.OwnLane()
	release()
	require.NotNil(t, c.Lookup())
	require.Nil(t, c.CachedTopic("t"))
	c.Close()
	require.Zero(t, dials.Load())
}

func TestClose(t *testing.T) {
	e := start(t)
	require.NoError(t, e.c.Lane().Do(within(t), initCall("id")).Err)
	select {
	case <-e.c.Done():
		t.Fatal("done before Close")
	default:
	}
	var closing sync.WaitGroup
	for range 3 {
		closing.Go(e.c.Close)
	}
	closing.Wait()
	<-e.c.Done()
	require.Eventually(t, func() bool { return e.nw.Conns() == 0 }, 5*time.Second, time.Millisecond, "the connections end")
}

func TestCloseWithDeadBrokers(t *testing.T) {
	for name, kill := range map[string]func(*faultnet.Net){
		"that refuse":     (*faultnet.Net).DownAll,
		"that are silent": (*faultnet.Net).BlackholeAll,
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t)
			lane := e.c.Lane()
			require.NoError(t, lane.Do(within(t), initCall("id")).Err)
			kill(e.nw)
			var busy sync.WaitGroup
			for _, use := range []func(){
				func() { lane.Do(within(t), initCall("id")) },
				func() { lane.Do(within(t), initCall("other")) },
				func() { e.c.Lane().Do(within(t), initCall("id")) },
				func() { _, _ = e.c.Topic(within(t), "t") },
				func() { _, _ = e.c.Supports(within(t), transport.CapShareGroups) },
				func() { _, _ = e.c.TransactionVersion(within(t), "id", true) },
				func() { _, _ = e.c.Coordinators(within(t), names(10)) },
				func() {
					done := make(chan outcome, 1)
					e.c.ProduceLane().Produce(0, produceReq("t", 0), nil, collect(done))
					<-done
				},
			} {
				busy.Go(use)
			}
			began := time.Now()
			e.c.Close()
			require.Less(t, time.Since(began), 3*time.Second, "the bound is 2 s")
			busy.Wait()
		})
	}
}

func TestCloseIsBoundedWhateverTheDialerDoes(t *testing.T) {
	var log logRecorder
	stuck := make(chan struct{})
	dialing := make(chan struct{}, 10)
	var dials atomic.Int32
	var e *env
	e = start(t, kgo.WithLogger(&log), kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			return e.nw.Dial(ctx, network, addr) // to a seed, which names the nodes
		}
		dialing <- struct{}{}
		<-stuck // deaf to its context
		return nil, errors.New("late")
	}))
	done := make(chan outcome, 1)
	e.c.ProduceLane().Produce(0, produceReq("t", 0), nil, collect(done))
	<-dialing
	closed := make(chan struct{})
	go func() { e.c.Close(); close(closed) }()
	select {
	case <-closed:
	case <-within(t).Done():
		t.Fatal("Close hangs")
	}
	require.Empty(t, done)
	require.True(t, log.has("closing took too long, the rest ends in the background"))
	close(stuck)
	require.ErrorIs(t, (<-done).err, kgo.ErrClientClosed)
}

// logRecorder keeps the messages that were logged.
type logRecorder struct {
	mu   sync.Mutex
	msgs []string
}

func (l *logRecorder) Level() kgo.LogLevel { return kgo.LogLevelDebug }
func (l *logRecorder) Log(_ kgo.LogLevel, msg string, _ ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.msgs = append(l.msgs, msg)
}

func (l *logRecorder) has(msg string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.msgs, msg)
}

func TestLogger(t *testing.T) {
	e := start(t)
	require.NotNil(t, e.c.Logger())
	require.Equal(t, kgo.LogLevelNone, e.c.Logger().Level())
	e.c.Logger().Log(kgo.LogLevelError, "nobody reads this")

	var log logRecorder
	c := e.client(kgo.WithLogger(&log))
	require.Equal(t, kgo.LogLevelDebug, c.Logger().Level())
	e.fault(initProducerID, faultnet.CutAfter)
	require.NoError(t, c.Lane().Do(within(t), initCall("id")).Err)
	require.True(t, log.has("retrying request"))
}

// The lifetime that a user gave to kgo is that of the whole client.
func TestTheUsersContextEndsTheClient(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	e := start(t, kgo.WithContext(ctx))
	require.NoError(t, e.c.Lane().Do(within(t), initCall("id")).Err)
	cancel()
	<-e.c.Done()
	require.ErrorIs(t, e.c.Lane().Do(within(t), initCall("id")).Err, kgo.ErrClientClosed)
	e.c.Close()
}

// metricsHook is like a plugin that registers its metrics when it is told of a
// client, which works once.
type metricsHook struct {
	clients, closed       atomic.Int32
	connects, disconnects atomic.Int32
	writes, reads, e2es   atomic.Int32
	throttles             atomic.Int32
}

func (h *metricsHook) OnNewClient(*kgo.Client) {
	if h.clients.Add(1) > 1 {
		panic("registered twice")
	}
}
func (h *metricsHook) OnClientClosed(*kgo.Client) { h.closed.Add(1) }
func (h *metricsHook) OnBrokerConnect(kgo.BrokerMetadata, time.Duration, net.Conn, error) {
	h.connects.Add(1)
}
func (h *metricsHook) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { h.disconnects.Add(1) }
func (h *metricsHook) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == initProducerID {
		h.writes.Add(1)
	}
}
func (h *metricsHook) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == initProducerID {
		h.reads.Add(1)
	}
}
func (h *metricsHook) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, _ kgo.BrokerE2E) {
	if key == initProducerID {
		h.e2es.Add(1)
	}
}
func (h *metricsHook) OnBrokerThrottle(kgo.BrokerMetadata, time.Duration, bool) { h.throttles.Add(1) }

func TestHooksSeeAllLanesButOneClient(t *testing.T) {
	hook := new(metricsHook)
	e := start(t, kgo.WithHooks(hook))
	e.fault(initProducerID, faultnet.Rewrite, edit(func(_ kmsg.Request, resp kmsg.Response) {
		resp.(*kmsg.InitProducerIDResponse).ThrottleMillis = 1
	}))
	require.NoError(t, e.c.Lane().Do(within(t), initCall("id")).Err)
	require.NoError(t, e.c.Lane().Do(within(t), initCall("id")).Err)
	require.Equal(t, int32(1), hook.clients.Load())
	require.Equal(t, int32(2), hook.writes.Load())
	require.Equal(t, int32(2), hook.reads.Load())
	require.Equal(t, int32(2), hook.e2es.Load())
	require.Equal(t, int32(1), hook.throttles.Load())
	require.GreaterOrEqual(t, hook.connects.Load(), int32(3))
	e.c.Close()
	require.Equal(t, int32(1), hook.closed.Load())
	require.Equal(t, hook.connects.Load(), hook.disconnects.Load())

	var seen []kgo.Hook
	e.c.EachHook(func(h kgo.Hook) { seen = append(seen, h) })
	require.Equal(t, []kgo.Hook{hook, tracker{e}}, seen, "the user's, and no other")
}

func TestOptValue(t *testing.T) {
	e := start(t, kgo.ClientID("mine"))
	require.Equal(t, "mine", e.c.OptValue(kgo.ClientID))
	require.Equal(t, "mine", e.c.LookupClient().OptValue(kgo.ClientID))
	require.Equal(t, true, e.c.OptValue(kgo.DisableClientMetrics))
}

// Lanes say who they are as the user told them to.
func TestLanesAreMadeLikeTheirClient(t *testing.T) {
	e := start(t, kgo.ClientID("mine"), kgo.SoftwareNameAndVersion("soft", "1.2"), kgo.MinVersions(kversion.V2_8_0()))
	require.NoError(t, e.c.Lane().Do(within(t), initCall("id")).Err)
	done := make(chan outcome, 1)
	e.c.ProduceLane().Produce(e.cluster.LeaderFor("t", 0), produceReq("t", 0), nil, collect(done))
	require.NoError(t, (<-done).err)
	for _, r := range e.nw.Log() {
		require.Equal(t, "mine", r.ClientID)
		if r.Key == apiVersions {
			req, err := r.Decode()
			require.NoError(t, err)
			require.Equal(t, "soft", req.(*kmsg.ApiVersionsRequest).ClientSoftwareName)
		}
	}
}

func TestMinVersionsOfTheUser(t *testing.T) {
	low := new(kversion.Versions)
	low.SetMaxKeyVersion(initProducerID, 4)
	caps := kversion.Stable()
	caps.SetMaxKeyVersion(initProducerID, 3)
	e := start(t, kgo.MinVersions(low), kgo.MaxVersions(caps))
	r := e.c.Lane().Do(within(t), initCall("id"))
	require.Equal(t, transport.ClassUnsupported, r.Class)
	require.ErrorContains(t, r.Err, "MinVersions")
	require.False(t, r.Sent)
}

func TestCapsWithoutTheKey(t *testing.T) {
	caps := kversion.Stable()
	caps.SetMaxKeyVersion(initProducerID, -1)
	e := start(t, kgo.MaxVersions(caps))
	r := e.c.Lane().Do(within(t), initCall("id"))
	require.Equal(t, transport.ClassUnsupported, r.Class)
	require.False(t, r.Sent)
	require.Zero(t, r.Attempts)
}
