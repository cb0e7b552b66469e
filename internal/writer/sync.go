package writer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// syncGrace is how long a promise may be at work before a ProduceSync whose
// context has ended no longer waits for it to return.
const syncGrace = time.Second

// syncCall is one ProduceSync. Only the goroutine that runs promises touches
// left and results once the call has begun, until done is closed.
type syncCall struct {
	left    int
	results kgo.ProduceResults
	done    chan struct{}
}

// ProduceSync produces records and waits until all are answered. What lingers is
// sent at once. If ctx ends before, the transaction fails, and with it every
// record that has no answer yet: one that has been sent may still be appended,
// but not be committed.
func (s *Source) ProduceSync(ctx context.Context, rs ...*kgo.Record) kgo.ProduceResults {
	if len(rs) == 0 {
		return nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	w := s.w
	c := &syncCall{left: len(rs), results: make(kgo.ProduceResults, 0, len(rs)), done: make(chan struct{})}
	promise := func(r *kgo.Record, err error) {
		c.results = append(c.results, kgo.ProduceResult{Record: r, Err: err})
		if c.left--; c.left == 0 {
			w.synced = append(w.synced, c.done)
		}
	}
	for _, r := range rs {
		s.Produce(ctx, r, promise, true)
	}
	w.hurry(1)
	defer w.hurry(-1)
	select {
	case <-c.done:
		return c.results
	case <-ctx.Done():
	}
	w.mu.Lock()
	if r := w.run; r != nil && s.records.Load() > 0 {
		err := fmt.Errorf("waiting for the answer: %w", contextError(ctx))
		r.fail(err, false)
		r.abandon(errors.Join(err, errUnanswered))
	}
	turn := w.turn.Load()
	w.unlock()
	return c.cut(w, turn, rs, contextError(ctx))
}

// cut waits for the promises of a call that its context has ended, which only
// other promises can hold up. It does not wait for itself, should it have been
// made inside a promise.
func (c *syncCall) cut(w *Writer, turn uint64, rs []*kgo.Record, err error) kgo.ProduceResults {
	for {
		t := time.NewTimer(syncGrace)
		select {
		case <-c.done:
			t.Stop()
			return c.results
		case <-t.C:
		}
		w.mu.Lock()
		stuck := w.delivering && turn == w.turn.Load()
		turn = w.turn.Load()
		w.unlock()
		if stuck {
			results := make(kgo.ProduceResults, len(rs))
			for i, r := range rs {
				results[i] = kgo.ProduceResult{Record: r, Err: w.failure(err, true)}
			}
			return results
		}
	}
}

// hurry counts calls that wait for their records, if there is anything that
// would keep those back.
func (w *Writer) hurry(n int) {
	if w.opts.Linger == 0 && !w.opts.ManualFlushing {
		return
	}
	w.mu.Lock()
	defer w.unlock()
	w.urgent += n
	if n > 0 {
		w.pumpAll()
	}
}
