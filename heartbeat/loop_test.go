package heartbeat_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ktxn/ktxn/heartbeat"
)

var errBoom = errors.New("boom")

// script is a beat that notes when it was called, seconds after the script was
// made, and answers as told: one step a call, the last one for ever.
type script struct {
	start time.Time
	steps []step
	calls []float64
}

type step struct {
	takes time.Duration
	next  time.Duration
	err   error
	rude  bool // ignores its context
}

func newScript(steps ...step) *script { return &script{start: time.Now(), steps: steps} }

func (s *script) now() float64 { return time.Since(s.start).Seconds() }

func (s *script) beat(ctx context.Context) (time.Duration, error) {
	do := s.steps[min(len(s.calls), len(s.steps)-1)]
	s.calls = append(s.calls, s.now())
	if do.takes > 0 {
		done := ctx.Done()
		if do.rude {
			done = nil
		}
		select {
		case <-time.After(do.takes):
		case <-done:
			return 0, ctx.Err()
		}
	}
	return do.next, do.err
}

func TestBeatTimes(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name               string
		interval, deadline time.Duration
		steps              []step
		run                time.Duration // stopped then
		calls              []float64
		want               error
	}{
		{"the first beat comes after the interval, then one each interval", 2 * s, 10 * s, []step{{}}, 7 * s, []float64{2, 4, 6}, heartbeat.ErrStopped},
		{"stop before the first beat", 2 * s, 10 * s, []step{{}}, 1 * s, nil, heartbeat.ErrStopped},
		{"the time a beat takes does not stretch the interval", 2 * s, 10 * s, []step{{takes: s}}, 7500 * time.Millisecond, []float64{2, 4, 6}, heartbeat.ErrStopped},
		{"a beat slower than the interval is followed by the next at once", 2 * s, 10 * s, []step{{takes: 3 * s}}, 9500 * time.Millisecond, []float64{2, 5, 8}, heartbeat.ErrStopped},
		{"next holds for one beat", 2 * s, 10 * s, []step{{next: 5 * s}, {next: s}, {}}, 13500 * time.Millisecond, []float64{2, 7, 8, 10, 12}, heartbeat.ErrStopped},
		{"a negative next keeps the interval", 2 * s, 10 * s, []step{{next: -s}}, 5 * s, []float64{2, 4}, heartbeat.ErrStopped},
		{"next never takes more than two thirds of the deadline", 2 * s, 9 * s, []step{{next: time.Hour}}, 15 * s, []float64{2, 8, 14}, heartbeat.ErrStopped},
		{"nor does the interval", 9 * s, 9 * s, []step{{}}, 19 * s, []float64{6, 12, 18}, heartbeat.ErrStopped},
		{"after a long wait there are two more tries", 9 * s, 9 * s, []step{{err: errBoom}}, 60 * s, []float64{6, 7, 8}, heartbeat.ErrDeadline},
		{"a failure is tried again after the interval", 2 * s, 30 * s, []step{{err: errBoom}, {err: errBoom}, {}}, 9 * s, []float64{2, 4, 6, 8}, heartbeat.ErrStopped},
		{"and after a third of what is left if that is sooner", 4 * s, 10 * s, []step{{err: errBoom}}, 60 * s, []float64{4, 6, 8}, heartbeat.ErrDeadline},
		{"next with an error is the wait for the next try", 4 * s, 16 * s, []step{{next: s, err: errBoom}, {next: 2 * s, err: errBoom}, {}}, 9 * s, []float64{4, 5, 7}, heartbeat.ErrStopped},
		{"which cannot postpone it beyond a third", 4 * s, 16 * s, []step{{next: time.Hour, err: errBoom}, {}}, 10 * s, []float64{4, 8}, heartbeat.ErrStopped},
		{"the second try of a success starts a new series", 4 * s, 10 * s, []step{{err: errBoom}, {}, {err: errBoom}, {}}, 16 * s, []float64{4, 6, 10, 12}, heartbeat.ErrStopped},
		{"a try that would come at the deadline is not made", s, 3 * s, []step{{takes: 500 * time.Millisecond, err: errBoom}, {takes: 1400 * time.Millisecond, err: errBoom}, {}}, 60 * s, []float64{1, 2.0}, heartbeat.ErrDeadline},
		{"a hanging beat lasts until the deadline", 2 * s, 10 * s, []step{{takes: time.Hour}}, 60 * s, []float64{2}, heartbeat.ErrDeadline},
		{"the deadline counts from when the successful beat was called", 2 * s, 10 * s, []step{{takes: s}, {takes: time.Hour}}, 60 * s, []float64{2, 4}, heartbeat.ErrDeadline},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				beats := newScript(tt.steps...)
				l := heartbeat.Start(t.Context(), tt.interval, tt.deadline, beats.beat)
				select {
				case <-time.After(tt.run):
					require.NoError(t, l.Err(), "a running loop has no reason yet")
					l.Stop()
				case <-l.Done():
				}
				require.ErrorIs(t, l.Err(), tt.want)
				require.InDeltaSlice(t, tt.calls, beats.calls, 1e-6)
				time.Sleep(time.Hour) // fake time: an ended loop stays silent
				require.Len(t, beats.calls, len(tt.calls))
			})
		})
	}
}

func TestDeadlineMoment(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name     string
		interval time.Duration
		beat     []step
		ends     time.Duration
		last     error
	}{
		{"from Start if there never was a success", 2 * s, []step{{err: errBoom}}, 10 * s, errBoom},
		{"and not a moment later because of the last try", 4 * s, []step{{err: errBoom}}, 10 * s, errBoom},
		{"from Start if the first beat hangs", 2 * s, []step{{takes: time.Hour}}, 10 * s, nil},
		{"from the call of the last success, not its answer", 2 * s, []step{{takes: 1500 * time.Millisecond}, {takes: time.Hour}}, 12 * s, nil},
		{"a success after a miss resets it", 2 * s, []step{{err: errBoom}, {}, {takes: time.Hour}}, 14 * s, nil},
		{"a success that comes after it is too late", 2 * s, []step{{takes: 8500 * time.Millisecond, rude: true}, {}}, 10500 * time.Millisecond, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				beats := newScript(tt.beat...)
				l := heartbeat.Start(t.Context(), tt.interval, 10*s, beats.beat)
				<-l.Done()
				require.Equal(t, tt.ends, time.Since(beats.start))
				require.ErrorIs(t, l.Err(), heartbeat.ErrDeadline)
				if tt.last == nil {
					require.Equal(t, heartbeat.ErrDeadline, l.Err(), "no miss since the last success")
				} else {
					require.ErrorIs(t, l.Err(), tt.last)
				}
			})
		})
	}
}

// foreignContext is not a context of package context, which therefore needs a
// goroutine to watch it for as long as a child lives.
type foreignContext struct {
	context.Context
	done chan struct{}
}

func (c foreignContext) Done() <-chan struct{} { return c.done }

func TestEndedLoopLeavesItsContextAlone(t *testing.T) {
	for _, err := range []error{errBoom, heartbeat.Permanent(errBoom)} {
		// The bubble fails if a goroutine is left when this returns.
		synctest.Test(t, func(t *testing.T) {
			ctx := foreignContext{context.Background(), make(chan struct{})}
			l := heartbeat.Start(ctx, time.Second, 3*time.Second, newScript(step{err: err}).beat)
			<-l.Done()
			require.ErrorIs(t, l.Err(), errBoom)
		})
	}
}

func TestBeatContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "v")
		start := time.Now()
		calls := 0
		l := heartbeat.Start(ctx, 2*time.Second, 10*time.Second, func(ctx context.Context) (time.Duration, error) {
			calls++
			assert.Equal(t, "v", ctx.Value(key{}), "values of the context given to Start")
			deadline, ok := ctx.Deadline()
			assert.True(t, ok)
			if calls == 1 {
				assert.Equal(t, 10*time.Second, deadline.Sub(start))
				return 0, nil
			}
			assert.Equal(t, 12*time.Second, deadline.Sub(start), "two seconds after the first success")
			<-ctx.Done()
			assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
			assert.ErrorIs(t, context.Cause(ctx), heartbeat.ErrDeadline)
			return 0, ctx.Err()
		})
		<-l.Done()
		require.Equal(t, 2, calls)
		require.Equal(t, heartbeat.ErrDeadline, l.Err(), "a beat that the deadline cut is not a reason of its own")
	})
}

func TestReasons(t *testing.T) {
	fenced := errors.New("fenced")
	cause := errors.New("why the context ended")
	tests := []struct {
		name string
		beat func(stop func(), cancel context.CancelCauseFunc) (time.Duration, error)
		is   []error
		not  []error
	}{
		{
			"permanent", func(func(), context.CancelCauseFunc) (time.Duration, error) {
				return 0, heartbeat.Permanent(fenced)
			},
			[]error{fenced},
			[]error{heartbeat.ErrStopped, heartbeat.ErrDeadline},
		},
		{
			"permanent inside a wrapper", func(func(), context.CancelCauseFunc) (time.Duration, error) {
				return 0, fmt.Errorf("beat 1: %w", heartbeat.Permanent(fenced))
			},
			[]error{fenced},
			[]error{heartbeat.ErrStopped, heartbeat.ErrDeadline},
		},
		{
			"the context's cause", func(_ func(), cancel context.CancelCauseFunc) (time.Duration, error) {
				cancel(cause)
				return 0, nil
			},
			[]error{cause},
			[]error{heartbeat.ErrStopped, heartbeat.ErrDeadline},
		},
		{
			"the first reason stands", func(_ func(), cancel context.CancelCauseFunc) (time.Duration, error) {
				cancel(cause)
				return 0, heartbeat.Permanent(fenced)
			},
			[]error{cause},
			[]error{fenced},
		},
		{
			"stopped during a beat", func(stop func(), _ context.CancelCauseFunc) (time.Duration, error) {
				go stop()
				synctest.Wait()
				return 0, heartbeat.Permanent(fenced)
			},
			[]error{heartbeat.ErrStopped},
			[]error{fenced},
		},
		{
			"the deadline, with the last failure", func(func(), context.CancelCauseFunc) (time.Duration, error) {
				return 0, fenced // not permanent
			},
			[]error{heartbeat.ErrDeadline, fenced},
			[]error{heartbeat.ErrStopped},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				self := make(chan *heartbeat.Loop, 1)
				l := heartbeat.Start(ctx, time.Second, 10*time.Second, func(context.Context) (time.Duration, error) {
					l := <-self
					self <- l
					return tt.beat(l.Stop, cancel)
				})
				self <- l
				<-l.Done()
				err := l.Err()
				for _, is := range tt.is {
					require.ErrorIs(t, err, is)
				}
				for _, not := range tt.not {
					require.NotErrorIs(t, err, not)
				}
				l.Stop()
				require.Equal(t, err, l.Err(), "Stop after the end changes nothing")
			})
		})
	}
}

func TestContextEndsWhileWaiting(t *testing.T) {
	cause := errors.New("why")
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprintf("before Start: %v", before), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				beats := newScript(step{})
				if before {
					cancel(cause)
				}
				l := heartbeat.Start(ctx, 2*time.Second, 10*time.Second, beats.beat)
				if !before {
					time.Sleep(5 * time.Second)
					cancel(cause)
				}
				<-l.Done()
				require.ErrorIs(t, l.Err(), cause)
				want := []float64{2, 4}
				if before {
					want = nil
				}
				require.InDeltaSlice(t, want, beats.calls, 1e-6)
			})
		})
	}
}

func TestPermanentOfNilIsSuccess(t *testing.T) {
	require.NoError(t, heartbeat.Permanent(nil))
}

func TestPermanentKeepsTheText(t *testing.T) {
	require.EqualError(t, heartbeat.Permanent(errBoom), errBoom.Error())
}

func TestOnMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type miss struct {
			missed int
			left   time.Duration
			err    error
		}
		const s = time.Second
		second := errors.New("second")
		beats := newScript(
			step{err: errBoom}, step{err: second}, step{}, // 2, 4, 6
			step{takes: s, err: errBoom}, step{takes: time.Hour}, // 8, 11 and then to the deadline at 16
		)
		var got []miss
		l := heartbeat.Start(t.Context(), 2*s, 10*s, beats.beat, nil,
			heartbeat.OnMiss(func(int, time.Duration, error) { t.Error("the last option counts") }),
			heartbeat.OnMiss(func(missed int, left time.Duration, err error) {
				got = append(got, miss{missed, left, err})
			}))
		<-l.Done()
		require.Equal(t, []miss{{1, 8 * s, errBoom}, {2, 6 * s, second}, {1, 7 * s, errBoom}}, got)
		require.ErrorIs(t, l.Err(), heartbeat.ErrDeadline)
		require.ErrorIs(t, l.Err(), errBoom)
		require.NotErrorIs(t, l.Err(), second, "a success has cleared it")
	})
}

func TestOnMissOfNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := heartbeat.Start(t.Context(), time.Second, 3*time.Second, newScript(step{err: errBoom}).beat, heartbeat.OnMiss(nil))
		<-l.Done()
		require.ErrorIs(t, l.Err(), heartbeat.ErrDeadline)
	})
}

func TestBadArguments(t *testing.T) {
	ok := func(context.Context) (time.Duration, error) { return 0, nil }
	tests := []struct {
		name               string
		ctx                context.Context
		interval, deadline time.Duration
		beat               func(context.Context) (time.Duration, error)
		argument, text     string
	}{
		{"no context", nil, 1, 1, ok, "ctx", "heartbeat: ctx is nil"},
		{"interval 0", t.Context(), 0, time.Second, ok, "interval", "heartbeat: interval must be above 0, not 0s"},
		{"interval below 0", t.Context(), -time.Second, time.Second, ok, "interval", "heartbeat: interval must be above 0, not -1s"},
		{"deadline before the interval", t.Context(), time.Second, time.Millisecond, ok, "deadline", "heartbeat: deadline of 1ms is less than the interval of 1s"},
		{"no beat", t.Context(), time.Second, time.Second, nil, "beat", "heartbeat: beat is nil"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := heartbeat.Start(tt.ctx, tt.interval, tt.deadline, tt.beat)
			select {
			case <-l.Done():
			default:
				t.Fatal("the loop has not ended")
			}
			var arg *heartbeat.ArgumentError
			require.ErrorAs(t, l.Err(), &arg)
			require.Equal(t, tt.argument, arg.Argument)
			require.EqualError(t, arg, tt.text)
			l.Stop()
			require.ErrorIs(t, l.Err(), error(arg))
		})
	}
}

func TestHugeDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const forever = time.Duration(1<<63 - 1)
		beats := newScript(step{})
		l := heartbeat.Start(t.Context(), time.Hour, forever, beats.beat)
		time.Sleep(2*time.Hour + time.Minute)
		l.Stop()
		require.ErrorIs(t, l.Err(), heartbeat.ErrStopped)
		require.InDeltaSlice(t, []float64{3600, 7200}, beats.calls, 1e-6)
	})
}
