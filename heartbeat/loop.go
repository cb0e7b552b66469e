package heartbeat

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// abandonAfter is how long the end of a loop waits for a beat, or an OnMiss
// function, that ignores that its context has ended.
const abandonAfter = time.Second

// A Loop is a running, or ended, periodic beat. Make one with [Start].
type Loop struct {
	beat     func(context.Context) (time.Duration, error)
	onMiss   onMissOpt
	interval time.Duration
	deadline time.Duration

	cancel context.CancelCauseFunc // nil if the arguments were refused
	done   chan struct{}
	end    sync.Once
	err    error // set before done is closed, never after
}

// Start starts a loop that calls beat every interval, the first time after
// one interval, and ends it when no beat has succeeded for the length of the
// deadline. See the package comment for the exact times.
//
// The context of a beat ends with the loop and, at the latest, when the
// deadline passes; its Deadline is that moment. A beat returns nil if the
// other party has confirmed it in time: a success that is returned after the
// deadline does not revive the loop. If next is above 0 it takes the place of
// the interval for the following beat, or for the following try if err is not
// nil; 0 and less keep the interval. An error marked by [Permanent] ends the
// loop.
//
// ctx bounds the life of the loop: when it ends, the loop ends with
// context.Cause(ctx) as its reason.
//
// Start does not wait and always returns a Loop. If interval is not above 0,
// if deadline is less than interval or if ctx or beat is nil, that Loop has
// already ended, with an [*ArgumentError] as its reason.
func Start(ctx context.Context, interval, deadline time.Duration, beat func(context.Context) (next time.Duration, err error), opts ...Opt) *Loop {
	l := &Loop{beat: beat, interval: interval, deadline: deadline, done: make(chan struct{})}
	for _, opt := range opts {
		if fn, ok := opt.(onMissOpt); ok {
			l.onMiss = fn
		}
	}
	if err := checkArguments(ctx, interval, deadline, beat); err != nil {
		l.err = err
		close(l.done)
		return l
	}
	ctx, l.cancel = context.WithCancelCause(ctx)
	go l.run(ctx)
	return l
}

func checkArguments(ctx context.Context, interval, deadline time.Duration, beat func(context.Context) (time.Duration, error)) error {
	switch {
	case ctx == nil:
		return &ArgumentError{"ctx", "is nil"}
	case interval <= 0:
		return &ArgumentError{"interval", "must be above 0, not " + interval.String()}
	case deadline < interval:
		return &ArgumentError{"deadline", "of " + deadline.String() + " is less than the interval of " + interval.String()}
	case beat == nil:
		return &ArgumentError{"beat", "is nil"}
	}
	return nil
}

// Done returns a channel that is closed when the loop has ended: [Loop.Err]
// has the reason, and no beat and no OnMiss call starts any more. None is
// running either, except for one that ignores its context: after one second
// the loop ends without it. What such a beat returns later is ignored, and
// the goroutine it runs on ends with it.
func (l *Loop) Done() <-chan struct{} { return l.done }

// Err returns why the loop has ended: [ErrStopped], [ErrDeadline] (wrapped
// together with the last failure), the error that a beat marked as
// [Permanent], the cause of the context that Start was given, or an
// [*ArgumentError]; use errors.Is and errors.As. It is nil until Done is
// closed and does not change afterwards.
func (l *Loop) Err() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// Stop ends the loop, unless it has ended, and returns when Done is closed.
// It ends the context of a beat that is running. It waits for that beat, for
// one second at most: see [Loop.Done]. A beat that was cut short may have
// reached the other party.
//
// It may be called many times and concurrently; each call waits. It must not
// be called from inside the beat or an OnMiss function, where it would wait
// for its own caller and return only after that second: end the loop there by
// returning a [Permanent] error, or by cancelling the context given to Start.
func (l *Loop) Stop() {
	if l.cancel == nil {
		return
	}
	l.cancel(ErrStopped)
	<-l.done
}

// finish ends the loop for reason, unless it has ended.
func (l *Loop) finish(reason error) {
	l.end.Do(func() {
		l.err = reason
		l.cancel(reason)
		close(l.done)
	})
}

func (l *Loop) run(ctx context.Context) {
	// Start is as good as a successful beat.
	s := schedule{interval: l.interval, deadline: l.deadline}
	due := s.succeeded(time.Now(), 0)

	// The one thing that run cannot do by itself is to end while it is
	// inside a beat that does not return. The watchdog does, some time
	// after the deadline; the end of ctx brings it forward.
	watchdog := time.AfterFunc(time.Until(s.expires.Add(abandonAfter)), func() { l.abandon(ctx) })
	defer watchdog.Stop()
	defer context.AfterFunc(ctx, func() { watchdog.Reset(abandonAfter) })()

	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		sent := time.Now()
		if reason := s.over(ctx, sent); reason != nil {
			l.finish(reason)
			return
		}

		next, err := l.callBeat(ctx, s.expires)
		now := time.Now()
		if reason := s.over(ctx, now); reason != nil {
			l.finish(reason)
			return
		}
		switch {
		case err == nil:
			due = s.succeeded(sent, next)
			watchdog.Reset(time.Until(s.expires.Add(abandonAfter)))
		case isPermanent(err):
			l.finish(err)
			return
		default:
			due = s.failed(now, next, err)
			if l.onMiss != nil {
				l.onMiss(s.missed, s.left(now), err)
			}
		}
		timer.Reset(time.Until(due))
	}
}

func (l *Loop) callBeat(ctx context.Context, expires time.Time) (time.Duration, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, expires, ErrDeadline)
	defer cancel()
	return l.beat(ctx)
}

// abandon ends the loop without the call that it is in.
func (l *Loop) abandon(ctx context.Context) {
	reason := ErrDeadline
	if ctx.Err() != nil {
		reason = context.Cause(ctx)
	}
	l.finish(fmt.Errorf("%w; a call that ignores its context was left behind", reason))
}
