package kafkatest_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

// serve runs a server; end ends it and waits.
func serve(t *testing.T, idle time.Duration) (addr string, end func()) {
	t.Helper()
	s, err := kafkatest.Listen()
	require.NoError(t, err)
	s.Idle = idle
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	done := false
	end = func() {
		if !done {
			done = true
			cancel()
			require.NoError(t, <-served)
		}
	}
	t.Cleanup(end)
	return s.Addr(), end
}

// refused waits until nobody listens there any more.
func refused(t *testing.T, addr string) {
	t.Helper()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, 20*time.Second, 20*time.Millisecond, "the node at %s is still there", addr)
}

func TestServerStartsOnceAndEndsWhatNobodyUses(t *testing.T) {
	t.Parallel()
	if err := kafkatest.Available(t.Context()); err != nil {
		skipWithoutTools(t, err)
	}
	addr, end := serve(t, 10*time.Millisecond)
	ctx := bounded(t)
	spec := kafkatest.Latest()
	spec.Overrides = "num.partitions=2" // nobody else's

	a, releaseA, err := kafkatest.Lease(ctx, addr, spec)
	require.NoError(t, err)
	b, releaseB, err := kafkatest.Lease(ctx, addr, spec)
	require.NoError(t, err)
	require.Equal(t, a.Seeds(), b.Seeds())
	require.True(t, a.Shared())
	require.ErrorIs(t, a.Kill(1), kafkatest.ErrShared)
	a.Close()
	releaseA()
	topic := kafkatest.Topic(t, b, 1)
	produce(t, client(t, b.Opts()), topic, "x")
	got, err := kafkatest.ReadCommitted(ctx, b, topic)
	require.NoError(t, err)
	require.Equal(t, []string{"x"}, values(got))
	releaseB()
	refused(t, b.Seeds()[0])

	// Asked for again it starts again.
	c, releaseC, err := kafkatest.Lease(ctx, addr, spec)
	require.NoError(t, err)
	defer releaseC()
	require.NoError(t, client(t, c.Opts()).Ping(ctx))

	spec.Secure = true
	s, releaseS, err := kafkatest.Lease(ctx, addr, spec)
	require.NoError(t, err)
	defer releaseS()
	require.NoError(t, s.AddUser(ctx, "user"))
	require.NoError(t, client(t, s.UserOpts("user")).Ping(ctx))
	end()
	refused(t, s.Seeds()[0])
	refused(t, c.Seeds()[0])
}

func TestServerSaysWhatIsWrong(t *testing.T) {
	addr, end := serve(t, time.Hour)
	_, _, err := kafkatest.Lease(bounded(t), addr, kafkatest.Spec{Version: "nonsense"})
	require.ErrorContains(t, err, "nonsense")

	t.Setenv("PATH", t.TempDir())
	_, _, err = kafkatest.Lease(bounded(t), addr, kafkatest.Latest())
	require.ErrorAs(t, err, new(*kafkatest.MissingError))

	end()
	_, _, err = kafkatest.Lease(bounded(t), addr, kafkatest.Latest())
	require.ErrorContains(t, err, "KTXN_KAFKATEST")
}
