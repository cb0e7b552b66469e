package wire_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ktxn/ktxn/internal/wire"
)

func initRequest(id string, set func(*wire.InitProducerIDRequest)) *wire.InitProducerIDRequest {
	v := wire.NewInitProducerIDRequest()
	v.TransactionalID = &id
	v.TransactionTimeoutMillis = 60_000
	set(v)
	return v
}

func keepPrepared(v *wire.InitProducerIDRequest) { v.KeepPreparedTxn = true }

// What kgo puts on the wire, and what it makes of the answer.
func TestKgoSendsTheNewVersions(t *testing.T) {
	tests := []struct {
		name    string
		req     *wire.InitProducerIDRequest
		version int16
	}{
		{"nothing set", initRequest("tx", func(*wire.InitProducerIDRequest) {}), 5},
		{"keep prepared", initRequest("tx", keepPrepared), 6},
		{"2pc", initRequest("tx", func(v *wire.InitProducerIDRequest) { v.Enable2Pc = true }), 6},
		{"session timeout", initRequest("tx", func(v *wire.InitProducerIDRequest) { v.TransactionSessionTimeoutMillis = 10_000 }), 7},
	}
	ours := kversion.Stable()
	ours.SetMaxKeyVersion(22, wire.MaxInitProducerIDVersion)
	for _, opt := range []struct {
		name string
		max  *kversion.Versions
	}{{"no cap", nil}, {"a cap with our version", ours}} {
		for _, tt := range tests {
			t.Run(opt.name+"/"+tt.name, func(t *testing.T) {
				s := &stubBroker{keys: map[int16]int16{22: 7}, answer: func(f frame) kmsg.Response {
					resp := wire.NewInitProducerIDResponse()
					resp.Version = f.version
					resp.ProducerID, resp.ProducerEpoch = 4, 5
					resp.OngoingTxnProducerID, resp.OngoingTxnProducerEpoch = 6, 7
					return resp
				}}
				cl := s.client(t, kgo.MaxVersions(opt.max))
				resp, err := tt.req.RequestWith(t.Context(), cl.SeedBrokers()[0])
				require.NoError(t, err)
				require.Equal(t, tt.version, resp.Version)
				require.EqualValues(t, 4, resp.ProducerID)
				require.EqualValues(t, 5, resp.ProducerEpoch)
				if tt.version >= 6 {
					require.EqualValues(t, 6, resp.OngoingTxnProducerID)
					require.EqualValues(t, 7, resp.OngoingTxnProducerEpoch)
				}
				require.False(t, tt.req.Unreadable())

				seen := s.seen()
				require.Len(t, seen, 1)
				require.Equal(t, tt.version, seen[0].version)
				want := *tt.req
				want.Version = tt.version
				require.Equal(t, want.AppendTo([]byte{0}), seen[0].rest, "the header's tags and the body")
			})
		}
	}
}

func TestKgoSendsTxnHeartbeat(t *testing.T) {
	message := "busy"
	for _, key := range []int16{wire.TxnHeartbeatKey, 99} {
		s := &stubBroker{keys: map[int16]int16{key: 0}, answer: func(f frame) kmsg.Response {
			return &wire.TxnHeartbeatResponse{ApiKey: f.key, ErrorCode: 51, ErrorMessage: &message}
		}}
		max := kversion.Stable()
		max.SetMaxKeyVersion(key, 0)
		cl := s.client(t, kgo.MaxVersions(max))
		req := wire.NewTxnHeartbeatRequest()
		req.ApiKey, req.TransactionalID, req.ProducerID = key, "tx", 7
		resp, err := wire.Send(t.Context(), cl.SeedBrokers()[0], wire.Track(req))
		require.NoError(t, err)
		beat, ok := resp.(*wire.TxnHeartbeatResponse)
		require.True(t, ok)
		require.EqualValues(t, 51, beat.ErrorCode)
		require.Equal(t, &message, beat.ErrorMessage)
		seen := s.seen()
		require.Len(t, seen, 1)
		require.Equal(t, key, seen[0].key)
		require.Equal(t, req.AppendTo([]byte{0}), seen[0].rest)
	}
}

// Without the key among its versions a broker gets nothing at all.
func TestKgoDoesNotSendAnUnknownKey(t *testing.T) {
	s := &stubBroker{keys: map[int16]int16{22: 5}, answer: func(frame) kmsg.Response { return nil }}
	cl := s.client(t)
	tracked := wire.Track(wire.NewTxnHeartbeatRequest())
	_, err := wire.Send(t.Context(), cl.SeedBrokers()[0], tracked)
	require.ErrorContains(t, err, "too old")
	require.False(t, tracked.Written())
	require.False(t, tracked.TooOld(), "it never came to a version")
	require.Empty(t, s.seen())
}

func TestSendRefusesALowVersion(t *testing.T) {
	capped := kversion.Stable()
	capped.SetMaxKeyVersion(22, 5)
	tests := []struct {
		name   string
		broker int16
		opt    kgo.Opt
		req    func() wire.Tracked
		key    int16
		got    int16
		needed int16
		text   string
	}{
		{
			"the broker is too old", 5, kgo.MaxVersions(nil),
			func() wire.Tracked { return wire.Track(initRequest("tx", keepPrepared)) }, 22, 5, 6,
			"InitProducerID (key 22) needs version 6, but broker and client agree on 5",
		},
		{
			"v7 over v6", 6, kgo.MaxVersions(nil),
			func() wire.Tracked {
				return wire.Track(initRequest("tx", func(v *wire.InitProducerIDRequest) { v.TransactionSessionTimeoutMillis = 1 }))
			}, 22, 6, 7,
			"InitProducerID (key 22) needs version 7, but broker and client agree on 6",
		},
		{
			"the user's cap", 7, kgo.MaxVersions(capped),
			func() wire.Tracked { return wire.Track(initRequest("tx", keepPrepared)) }, 22, 5, 6,
			"InitProducerID (key 22) needs version 6, but broker and client agree on 5",
		},
		{
			"our cap", 7, kgo.MaxVersions(nil),
			func() wire.Tracked { return wire.Track(initRequest("tx", keepPrepared)).CapVersion(3) }, 22, 3, 6,
			"InitProducerID (key 22) needs version 6, but broker and client agree on 3",
		},
		{
			"required", 4, kgo.MaxVersions(nil),
			func() wire.Tracked { return wire.Track(kmsg.NewPtrEndTxnRequest()).RequireVersion(5) }, 26, 4, 5,
			"EndTxn (key 26) needs version 5, but broker and client agree on 4",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &stubBroker{keys: map[int16]int16{22: tt.broker, 26: tt.broker}, answer: func(f frame) kmsg.Response {
				resp := kmsg.NewPtrInitProducerIDResponse()
				resp.Version = f.version
				return resp
			}}
			cl := s.client(t, tt.opt)
			to := cl.SeedBrokers()[0]
			tracked := tt.req()
			resp, err := wire.Send(t.Context(), to, tracked)
			require.Nil(t, resp)
			require.ErrorIs(t, err, kerr.UnsupportedVersion)
			var low *wire.VersionError
			require.ErrorAs(t, err, &low)
			require.Equal(t, &wire.VersionError{Key: tt.key, Version: tt.got, Needed: tt.needed}, low)
			require.EqualError(t, low, tt.text)
			require.True(t, tracked.TooOld())
			require.False(t, tracked.Written())
			require.Empty(t, s.seen(), "not a byte was sent")

			// Nor has the connection suffered, nor the caller's context.
			_, err = wire.Send(t.Context(), to, wire.Track(initRequest("tx", func(*wire.InitProducerIDRequest) {})))
			require.NoError(t, err)
			require.Equal(t, 1, s.dialed())
		})
	}
}

// Without Send the request goes out without a body.
func TestUnreadableBodyHasNoByte(t *testing.T) {
	s := &stubBroker{keys: map[int16]int16{22: 5}, answer: func(frame) kmsg.Response { return nil }}
	cl := s.client(t)
	req := initRequest("tx", keepPrepared)
	_, err := req.RequestWith(t.Context(), cl.SeedBrokers()[0])
	require.Error(t, err)
	require.True(t, req.Unreadable())
	seen := s.seen()
	require.Len(t, seen, 1)
	require.EqualValues(t, 5, seen[0].version)
	require.Equal(t, []byte{0}, seen[0].rest, "nothing but the header's tags")
}

// A tracked request travels on the connection of the request it wraps.
func TestTrackedKeepsItsConnection(t *testing.T) {
	s := &stubBroker{keys: map[int16]int16{1: 11, 12: 4, 19: 7, 26: 4}, answer: func(f frame) kmsg.Response {
		resp := kmsg.ResponseForKey(f.key)
		resp.SetVersion(f.version)
		return resp
	}}
	cl := s.client(t)
	to := cl.SeedBrokers()[0]
	conns := make(map[int16]int)
	for _, round := range []func(kmsg.Request) kmsg.Request{
		func(req kmsg.Request) kmsg.Request { return req },
		func(req kmsg.Request) kmsg.Request { return wire.Track(req) },
	} {
		for _, key := range []int16{0, 1, 12, 19, 26} {
			_, err := to.Request(t.Context(), round(kmsg.RequestForKey(key)))
			require.NoError(t, err)
			seen := s.seen()
			last := seen[len(seen)-1]
			require.Equal(t, key, last.key)
			if want, ok := conns[key]; ok {
				require.Equal(t, want, last.conn, "key %d", key)
			}
			conns[key] = last.conn
		}
	}
	require.Equal(t, 4, s.dialed(), "Produce, Fetch, CreateTopics with its timeout, and the two others on one")
	require.Equal(t, conns[12], conns[26])
}

// The next request may be issued once the one before has been written: they
// arrive in this order.
func TestOnWrittenOrders(t *testing.T) {
	const n = 20
	release := make(chan struct{})
	s := &stubBroker{keys: map[int16]int16{26: 4}, answer: func(f frame) kmsg.Response {
		<-release // so that none is answered before all are written
		resp := kmsg.NewPtrEndTxnResponse()
		resp.Version = f.version
		return resp
	}}
	cl := s.client(t)
	to := cl.SeedBrokers()[0]
	var requests sync.WaitGroup
	for i := range n {
		req := kmsg.NewPtrEndTxnRequest()
		req.ProducerID = int64(i)
		written := make(chan struct{})
		tracked := wire.Track(req).OnWritten(func() { close(written) })
		requests.Go(func() {
			_, err := to.Request(context.Background(), tracked)
			assert.NoError(t, err)
		})
		if i == 1 {
			// The pipe holds nothing: the second is written only once the
			// broker has read the first and its answer.
			close(release)
		}
		<-written
		require.True(t, tracked.Written())
	}
	requests.Wait()
	seen := s.seen()
	require.Len(t, seen, n)
	for i, f := range seen {
		got := kmsg.NewPtrEndTxnRequest()
		got.SetVersion(f.version)
		require.NoError(t, got.ReadFrom(f.rest[1:]))
		require.EqualValues(t, i, got.ProducerID)
	}
}

// A context that ends says nothing about the request; Written does.
func TestWrittenAfterTheContextEnded(t *testing.T) {
	got, release := make(chan struct{}), make(chan struct{})
	s := &stubBroker{keys: map[int16]int16{26: 4}, answer: func(frame) kmsg.Response {
		close(got)
		<-release
		return nil
	}}
	cl := s.client(t)
	t.Cleanup(func() { close(release) })
	to := cl.SeedBrokers()[0]

	ctx, cancel := context.WithCancel(t.Context())
	tracked := wire.Track(kmsg.NewPtrEndTxnRequest())
	go func() { <-got; cancel() }()
	_, err := wire.Send(ctx, to, tracked)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, tracked.Written())

	ctx, cancel = context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	tracked = wire.Track(kmsg.NewPtrEndTxnRequest())
	_, err = wire.Send(ctx, to, tracked)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, tracked.Written())
}
