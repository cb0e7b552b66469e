package writer

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// watchEvery is how late the end of a context or of RecordDeliveryTimeout may be
// noticed for records that do not move.
const watchEvery = 100 * time.Millisecond

// watch sets the timer that looks for records whose time is up. mu is held.
func (w *Writer) watch() {
	if !w.watching {
		w.watching = true
		time.AfterFunc(watchEvery, w.look)
	}
}

// look fails the run if a record of it has waited too long, or its context has
// ended before it was written.
func (w *Writer) look() {
	w.mu.Lock()
	defer w.unlock()
	w.watching = false
	r := w.run
	if r == nil || r.err != nil || r.dropping {
		return
	}
	now := time.Now()
	busy := false
	for _, t := range w.topics {
		if t.waitingFor != r {
			continue
		}
		busy = true
		for i := range t.waiting {
			wr := &t.waiting[i]
			err := endedContext(wr.ctxs[:])
			if err == nil && i == 0 {
				err = w.expired(wr.born, now)
			}
			if err != nil {
				r.fail(err, false)
				return
			}
		}
	}
	for _, p := range r.parts {
		for _, b := range p.queue {
			busy = true
			if err := w.late(b, now); err != nil {
				b.expire(err)
				return
			}
		}
	}
	if busy {
		w.watch()
	}
}

func (w *Writer) expired(born, now time.Time) error {
	if t := w.opts.RecordTimeout; t > 0 && now.Sub(born) >= t {
		return kgo.ErrRecordTimeout
	}
	return nil
}

// late is why b must not be waited for any longer, or nil.
func (w *Writer) late(b *batch, now time.Time) error {
	if b.state.done() {
		return nil
	}
	if err := w.expired(b.born, now); err != nil {
		return err
	}
	if !b.unsure && (b.state != batchSent || !b.req.encoded()) {
		return b.ended()
	}
	return nil
}

// expire ends a batch whose time is up, and with it the run. One in a request
// that has been written may have been appended all the same.
func (b *batch) expire(err error) {
	p, r := b.p, b.p.run
	err = p.errorf(err)
	if b.state != batchSent {
		b.fail(err, b.unsure)
		r.fail(err, b.unsure)
		return
	}
	sent := b.unsure || !b.req.silence()
	r.fail(err, sent)
	r.abandon(errors.Join(err, errUnanswered))
}

// linger sets the timer for open batches that wait for more records. mu is held.
func (w *Writer) linger(b *batch) {
	if w.opts.Linger > 0 && !w.lingering {
		w.lingering = true
		time.AfterFunc(time.Until(b.born.Add(w.opts.Linger)), w.lingered)
	}
}

// lingered has the brokers look at what has lingered long enough, and sets the
// timer for what has not.
func (w *Writer) lingered() {
	w.mu.Lock()
	defer w.unlock()
	w.lingering = false
	w.pumpAll()
	if w.run == nil {
		return
	}
	var next *batch
	for _, p := range w.run.parts {
		if b := p.open(); b != nil && !b.lingered(w, time.Now()) && (next == nil || b.born.Before(next.born)) {
			next = b
		}
	}
	if next != nil {
		w.linger(next)
	}
}

// lingered reports whether an open batch has waited long enough.
func (b *batch) lingered(w *Writer, now time.Time) bool {
	return now.Sub(b.born) >= w.opts.Linger
}
