package heartbeat

import (
	"context"
	"fmt"
	"time"
)

// schedule decides when the next beat is due and when it is too late for any.
// It reads no clock.
type schedule struct {
	interval, deadline time.Duration

	expires time.Time     // when the loop ends unless a beat succeeds
	missed  int           // failures since the last success
	last    error         // what the last of them returned
	retry   time.Duration // the longest wait in this series of failures
}

// succeeded counts a beat that was called at sent and has succeeded, and
// returns when the next is due.
func (s *schedule) succeeded(sent time.Time, next time.Duration) time.Time {
	s.missed, s.last = 0, nil
	s.expires = sent.Add(s.deadline)
	return sent.Add(min(s.wait(next), s.deadline-s.deadline/3))
}

// failed counts a beat that failed at now, before the deadline, and returns
// when to try again.
func (s *schedule) failed(now time.Time, next time.Duration, err error) time.Time {
	s.missed++
	s.last = err
	if s.missed == 1 {
		// The same for the whole series, since a third of the rest, each
		// time, would try ever faster and never arrive. Rounded up, so
		// that the third wait ends at the deadline and not just before.
		s.retry = s.left(now)/3 + 1
	}
	at := now.Add(min(s.wait(next), s.retry))
	if at.After(s.expires) {
		return s.expires
	}
	return at
}

func (s *schedule) wait(next time.Duration) time.Duration {
	if next > 0 {
		return next
	}
	return s.interval
}

func (s *schedule) left(now time.Time) time.Duration { return s.expires.Sub(now) }

// over returns why the loop has to end at now, or nil.
func (s *schedule) over(ctx context.Context, now time.Time) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case now.Before(s.expires):
		return nil
	case s.last != nil:
		// The last miss tells a refused connection from a coordinator
		// that moves.
		return fmt.Errorf("%w; the last one failed: %w", ErrDeadline, s.last)
	}
	return ErrDeadline
}
