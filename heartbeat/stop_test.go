package heartbeat_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ktxn/ktxn/heartbeat"
)

func TestStopJoinsARunningBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan struct{})
		ended := false
		l := heartbeat.Start(t.Context(), time.Second, 10*time.Second, func(ctx context.Context) (time.Duration, error) {
			close(started)
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), heartbeat.ErrStopped)
			time.Sleep(100 * time.Millisecond) // what it takes to clean up
			ended = true
			return 0, ctx.Err()
		})
		<-started
		var stops sync.WaitGroup
		for range 5 {
			stops.Go(func() {
				l.Stop()
				assert.True(t, ended, "Stop returned while the beat was running")
			})
		}
		stops.Wait()
		require.Equal(t, heartbeat.ErrStopped, l.Err())
	})
}

func TestStopDoesNotWaitForARudeBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, release := make(chan struct{}), make(chan struct{})
		l := heartbeat.Start(t.Context(), time.Second, 10*time.Second, func(context.Context) (time.Duration, error) {
			close(started) // a second call would panic
			<-release
			return 0, errBoom
		}, heartbeat.OnMiss(func(int, time.Duration, error) { t.Error("the loop has ended") }))
		<-started
		at := time.Now()
		l.Stop()
		require.Equal(t, time.Second, time.Since(at))
		require.ErrorIs(t, l.Err(), heartbeat.ErrStopped)
		require.ErrorContains(t, l.Err(), "ignores its context")
		err := l.Err()
		close(release)
		time.Sleep(time.Minute) // fake time: the late result is ignored
		require.Equal(t, err, l.Err())
	})
}

func TestDeadlineOfARudeBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		start := time.Now()
		var calls atomic.Int32
		l := heartbeat.Start(t.Context(), 2*time.Second, 10*time.Second, func(context.Context) (time.Duration, error) {
			if calls.Add(1) > 1 {
				<-release
			}
			return 0, nil
		})
		<-l.Done()
		require.Equal(t, 13*time.Second, time.Since(start), "the deadline at 12 and the second")
		require.ErrorIs(t, l.Err(), heartbeat.ErrDeadline)
		close(release)
		time.Sleep(time.Minute)
		require.EqualValues(t, 2, calls.Load(), "a loop that has ended does not beat")
	})
}

func TestContextOfARudeBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		started, release := make(chan struct{}), make(chan struct{})
		l := heartbeat.Start(ctx, time.Second, 10*time.Second, func(context.Context) (time.Duration, error) {
			close(started)
			<-release
			return 0, nil
		})
		<-started
		at := time.Now()
		cancel(cause)
		<-l.Done()
		require.Equal(t, time.Second, time.Since(at))
		require.ErrorIs(t, l.Err(), cause)
		close(release)
	})
}

func TestOnMissThatBlocksPastTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		start := time.Now()
		l := heartbeat.Start(t.Context(), 2*time.Second, 10*time.Second, newScript(step{err: errBoom}).beat,
			heartbeat.OnMiss(func(int, time.Duration, error) { <-release }))
		<-l.Done()
		require.Equal(t, 11*time.Second, time.Since(start))
		require.ErrorIs(t, l.Err(), heartbeat.ErrDeadline)
		close(release)
	})
}

func TestStopInsideIsNotADeadlock(t *testing.T) {
	for _, where := range []string{"beat", "OnMiss"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				self := make(chan *heartbeat.Loop, 1)
				returned := make(chan time.Duration, 1)
				stop := func() {
					at := time.Now()
					(<-self).Stop()
					returned <- time.Since(at)
				}
				l := heartbeat.Start(t.Context(), time.Second, 10*time.Second, func(context.Context) (time.Duration, error) {
					if where == "beat" {
						stop()
					}
					return 0, errBoom
				}, heartbeat.OnMiss(func(int, time.Duration, error) { stop() }))
				self <- l
				require.Equal(t, time.Second, <-returned)
				require.ErrorIs(t, l.Err(), heartbeat.ErrStopped)
			})
		})
	}
}

func TestStopOfAZeroLoop(t *testing.T) {
	var l heartbeat.Loop
	l.Stop()
	require.NoError(t, l.Err())
}
