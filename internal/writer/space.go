package writer

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// space is the buffer that MaxBufferedRecords and MaxBufferedBytes bound.
//
// A record's room is free again as soon as it is answered, before its promise
// runs, and not after it as in kgo: so a promise that produces waits for
// answers, which do not depend on it. Records whose promise is still to run are
// bounded by themselves, or slow promises would pile them up without end. A
// waiter that this bound alone holds up, and that came while the promise that
// is running now was running, may well be that promise: after a grace it
// passes, rather than wait for itself.
type space struct {
	records, bytes int64 // unanswered
	backlog        int64 // answered, promise not returned
	waiters        []*waiter
}

// promiseGrace is how long a promise may be at work before Produce is no longer
// held up for it to return.
const promiseGrace = 50 * time.Millisecond

// waiter is a Produce that waits for space. err and granted are set, under the
// writer's mu, before ready is closed.
type waiter struct {
	run     *run
	src     *Source
	size    int64
	turn    uint64 // the promise that was running when it came
	ready   chan struct{}
	granted bool
	err     error
}

// fits reports whether a record of size may be taken, promises aside.
func (w *Writer) fits(size int64) bool {
	return w.space.records < w.opts.MaxBufferedRecords &&
		(w.opts.MaxBufferedBytes == 0 || w.space.bytes+size <= w.opts.MaxBufferedBytes)
}

func (w *Writer) backlogged() bool { return w.space.backlog >= w.opts.MaxBufferedRecords }

// take counts a record in.
func (w *Writer) take(size int64) {
	w.space.records++
	w.space.bytes += size
}

// free counts answered records out; their promises are still to run.
func (w *Writer) free(recs []rec) {
	w.space.records -= int64(len(recs))
	for i := range recs {
		w.space.bytes -= recs[i].size
	}
	w.space.backlog += int64(len(recs))
	w.admit()
}

// admit lets waiters in, first come first served.
func (w *Writer) admit() {
	for len(w.space.waiters) > 0 && !w.backlogged() && w.fits(w.space.waiters[0].size) {
		w.grant(0)
	}
}

func (w *Writer) grant(i int) {
	wt := w.space.waiters[i]
	w.take(wt.size)
	wt.granted = true
	w.removeWaiter(i)
}

func (w *Writer) removeWaiter(i int) {
	wt := w.space.waiters[i]
	w.space.waiters = append(w.space.waiters[:i], w.space.waiters[i+1:]...)
	close(wt.ready)
}

// refuseWaiters fails what waits for space on behalf of a run.
func (w *Writer) refuseWaiters(r *run, err error) {
	for i := 0; i < len(w.space.waiters); {
		if wt := w.space.waiters[i]; wt.run == r {
			wt.err = err
			w.removeWaiter(i)
			continue
		}
		i++
	}
}

// acquire takes space for a record of size. It is called and returns with
// mu held, and lets go of it to wait. A nil error means that the space is taken,
// though the run may have ended meanwhile.
func (w *Writer) acquire(ctx context.Context, r *run, rc rec, block bool) error {
	size := rc.size
	if len(w.space.waiters) == 0 && !w.backlogged() && w.fits(size) {
		w.take(size)
		return nil
	}
	if !block || w.opts.ManualFlushing {
		return kgo.ErrMaxBuffered
	}
	wt := &waiter{run: r, src: rc.src, size: size, turn: w.turn.Load(), ready: make(chan struct{})}
	w.space.waiters = append(w.space.waiters, wt)
	w.blocked++
	w.pumpAll() // what lingers must go now
	w.unlock()
	w.await(ctx, wt)
	w.mu.Lock()
	w.blocked--
	if wt.granted || wt.err != nil {
		return wt.err
	}
	for i := range w.space.waiters {
		if w.space.waiters[i] == wt {
			w.removeWaiter(i)
			break
		}
	}
	return fmt.Errorf("waiting for buffer space: %w", contextError(ctx))
}

// await returns when wt is ready or ctx has ended.
func (w *Writer) await(ctx context.Context, wt *waiter) {
	grace := time.NewTimer(promiseGrace)
	defer grace.Stop()
	for {
		select {
		case <-wt.ready:
			return
		case <-ctx.Done():
			return
		case <-grace.C:
			w.mu.Lock()
			w.pass(wt)
			w.unlock()
			grace.Reset(promiseGrace)
		}
	}
}

// pass lets wt in if only a promise that has been running since it came holds
// it up.
func (w *Writer) pass(wt *waiter) {
	if !w.delivering || wt.turn != w.turn.Load() || !w.backlogged() || !w.fits(wt.size) {
		return
	}
	for i := range w.space.waiters {
		if w.space.waiters[i] == wt {
			w.grant(i)
			return
		}
	}
}

// contextError is nil while ctx lives, then its error and, if it has another,
// its cause.
func contextError(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != err { //nolint:errorlint // the very same value
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
