package wire_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/wire"
)

// eachKmsg calls fn with a fresh request of each key that kmsg has.
func eachKmsg(t *testing.T, fn func(t *testing.T, req kmsg.Request)) {
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		if req := kmsg.RequestForKey(key); req != nil {
			t.Run(kmsg.NameForKey(key), func(t *testing.T) { fn(t, req) })
		}
	}
}

func TestTrackForwards(t *testing.T) {
	eachKmsg(t, func(t *testing.T, req kmsg.Request) {
		tracked := wire.Track(req)
		require.Same(t, req, tracked.Unwrap())
		require.Equal(t, req.Key(), tracked.Key())
		require.Equal(t, req.MaxVersion(), tracked.MaxVersion())
		for version := int16(0); version <= req.MaxVersion(); version++ {
			tracked.SetVersion(version)
			require.Equal(t, version, req.GetVersion())
			require.Equal(t, version, tracked.GetVersion())
			require.Equal(t, req.IsFlexible(), tracked.IsFlexible())
			body := req.AppendTo([]byte("prefix"))
			require.Equal(t, body, tracked.AppendTo([]byte("prefix")))
			require.NoError(t, tracked.ReadFrom(body[len("prefix"):]))
			resp := tracked.ResponseKind()
			require.IsType(t, req.ResponseKind(), resp)
			require.Equal(t, version, resp.GetVersion())
		}
		require.True(t, tracked.Written())
		require.False(t, tracked.TooOld())
	})
}

// A kgo client picks the connection and the timeout of a request by these.
func TestTrackKeepsTimeouts(t *testing.T) {
	eachKmsg(t, func(t *testing.T, req kmsg.Request) {
		_, want := req.(kmsg.TimeoutRequest)
		if set, ok := req.(kmsg.SetTimeoutRequest); ok {
			set.SetTimeout(1234)
		}
		switch req := req.(type) {
		// By their Go types; each has a connection of its own by key.
		case *kmsg.FetchRequest:
			req.MaxWaitMillis, want = 1234, true
		case *kmsg.ShareFetchRequest:
			req.MaxWaitMillis, want = 1234, true
		case *kmsg.JoinGroupRequest:
			req.RebalanceTimeoutMillis, want = 1234, true
		}
		tracked := wire.Track(req)
		timeout, got := tracked.(kmsg.TimeoutRequest)
		require.Equal(t, want, got)
		if want {
			require.EqualValues(t, 1234, timeout.Timeout())
		}
	})
	_, ok := wire.Track(wire.NewTxnHeartbeatRequest()).(kmsg.TimeoutRequest)
	require.False(t, ok)
}

func TestTrackOptionsReturnTheSame(t *testing.T) {
	for _, req := range []kmsg.Request{kmsg.NewPtrEndTxnRequest(), kmsg.NewPtrProduceRequest()} {
		tracked := wire.Track(req)
		require.Same(t, tracked, tracked.CapVersion(3))
		require.Same(t, tracked, tracked.RequireVersion(2))
		require.Same(t, tracked, tracked.OnWritten(func() {}))
	}
}

func TestCapVersion(t *testing.T) {
	for _, tt := range []struct{ cap, want int16 }{{0, 0}, {4, 4}, {5, 5}, {100, 5}} {
		require.Equal(t, tt.want, wire.Track(kmsg.NewPtrEndTxnRequest()).CapVersion(tt.cap).MaxVersion())
	}
	require.EqualValues(t, 5, wire.Track(kmsg.NewPtrEndTxnRequest()).MaxVersion())
}

func TestWritten(t *testing.T) {
	req := kmsg.NewPtrEndTxnRequest()
	calls := 0
	var tracked wire.Tracked
	tracked = wire.Track(req).OnWritten(func() {
		calls++
		require.True(t, tracked.Written(), "true when OnWritten runs")
	})
	tracked.MaxVersion()
	tracked.SetVersion(5)
	require.False(t, tracked.Written())
	body := tracked.AppendTo(nil)
	require.True(t, tracked.Written())
	require.Equal(t, 1, calls)
	require.Equal(t, body, tracked.AppendTo(nil), "a client that writes it again gets the same bytes")
	require.Equal(t, 1, calls)
}

func TestRequireVersion(t *testing.T) {
	for version := range int16(6) {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			written := false
			tracked := wire.Track(kmsg.NewPtrEndTxnRequest()).RequireVersion(4).OnWritten(func() { written = true })
			require.False(t, tracked.TooOld(), "no version yet")
			tracked.SetVersion(version)
			require.Equal(t, version < 4, tracked.TooOld(), "known before anything is written")
			body := tracked.AppendTo(nil)
			require.Equal(t, version < 4, tracked.TooOld())
			require.Equal(t, version >= 4, tracked.Written())
			require.Equal(t, version >= 4, written)
			require.Equal(t, version < 4, len(body) == 0)
		})
	}
}

// A client that writes on a second connection may choose another version
// there. What has been handed over once is not taken back.
func TestRequireVersionOnTwoConnections(t *testing.T) {
	tracked := wire.Track(kmsg.NewPtrEndTxnRequest()).RequireVersion(4)
	tracked.SetVersion(3)
	tracked.AppendTo(nil)
	require.True(t, tracked.TooOld())
	tracked.SetVersion(5)
	require.False(t, tracked.TooOld())
	tracked.AppendTo(nil)
	require.True(t, tracked.Written())
	tracked.SetVersion(3)
	require.Empty(t, tracked.AppendTo(nil))
	require.False(t, tracked.TooOld())
	require.True(t, tracked.Written())
}

func TestTrackKnowsWhatIsNeeded(t *testing.T) {
	req := wire.NewInitProducerIDRequest()
	tracked := wire.Track(req).RequireVersion(5)
	req.KeepPreparedTxn = true
	require.EqualValues(t, 6, tracked.MaxVersion())
	tracked.SetVersion(5)
	require.True(t, tracked.TooOld())
	require.Empty(t, tracked.AppendTo(nil))
	require.False(t, tracked.Written())
	tracked.SetVersion(6)
	require.NotEmpty(t, tracked.AppendTo(nil))
	require.True(t, tracked.Written())
}

// The empty body is what keeps a request of too low a version from being
// applied. Each request whose version has no field could be parsed from it
// all the same, so none of those may change anything.
func TestNothingThatChangesAnythingHasAnEmptyBody(t *testing.T) {
	harmless := map[string]int16{ // the last version without a field
		"ApiVersions": 2,
		"ListGroups":  2,
	}
	eachKmsg(t, func(t *testing.T, req kmsg.Request) {
		for version := int16(0); version <= req.MaxVersion(); version++ {
			req.SetVersion(version)
			if last, ok := harmless[kmsg.NameForKey(req.Key())]; ok && version <= last {
				continue
			}
			require.Error(t, req.ReadFrom(nil), "v%d", version)
		}
	})
}
