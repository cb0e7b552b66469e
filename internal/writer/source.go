package writer

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/txnsession"
)

// SourceOptions are what each user of a writer has for itself.
type SourceOptions struct {
	Partitioner kgo.Partitioner
	Topic       string // where records without a topic go
	TopicAlways bool   // and all others
}

// Source is one user of a writer: a producer. It is safe for concurrent use.
type Source struct {
	w *Writer
	o SourceOptions

	records, bytes atomic.Int64 // handed to Produce, promise not returned

	// Writer.mu guards the rest.
	closed  bool
	placers map[*topic]*placer
	last    *placer
}

// Source makes a user of the writer. Without a partitioner it has kgo's
// default.
func (w *Writer) Source(o SourceOptions) *Source {
	if o.Partitioner == nil {
		o.Partitioner = DefaultPartitioner()
	}
	return &Source{w: w, o: o, placers: make(map[*topic]*placer)}
}

// DefaultPartitioner is kgo's default.
func DefaultPartitioner() kgo.Partitioner {
	return kgo.UniformBytesPartitioner(64<<10, true, true, nil)
}

func (s *Source) placer(t *topic) *placer {
	if s.last != nil && s.last.topic == t {
		return s.last
	}
	pl := s.placers[t]
	if pl == nil {
		pl = newPlacer(t, s.o.Partitioner)
		s.placers[t] = pl
	}
	s.last = pl
	return pl
}

// topic is Writer.topicOf with a short cut for the topic of the last record.
func (s *Source) topic(name string) *topic {
	if s.last != nil && s.last.topic.name == name {
		return s.last.topic
	}
	return s.w.topicOf(name)
}

// Writer returns the writer.
func (s *Source) Writer() *Writer { return s.w }

// Records returns how many records were handed to Produce and have a promise
// that has not returned yet.
func (s *Source) Records() int64 { return s.records.Load() }

// Bytes returns the bytes of keys, values and headers of those records.
func (s *Source) Bytes() int64 { return s.bytes.Load() }

// Produce hands a record over and returns once it is buffered, or refused: then
// its promise tells why. It waits for buffer space, unless it is not to block:
// then the record is refused with kgo.ErrMaxBuffered. ctx bounds that wait, and
// drops the record if it ends before its batch is written.
func (s *Source) Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error), block bool) {
	if ctx == nil {
		ctx = context.Background()
	}
	if promise == nil {
		promise = noPromise
	}
	w := s.w
	if r.Context == nil {
		r.Context = ctx
	}
	if r.Topic == "" || s.o.TopicAlways {
		r.Topic = s.o.Topic
	}
	if r.Timestamp.IsZero() {
		r.Timestamp = w.clock.now()
	} else {
		r.Timestamp = r.Timestamp.Truncate(time.Millisecond)
	}
	if len(w.hooks.onBuffered) > 0 {
		w.hooks.buffered(r)
	}
	rc := rec{r: r, promise: promise, src: s, size: userSize(r)}
	s.records.Add(1)
	s.bytes.Add(rc.size)

	w.mu.Lock()
	w.open++
	run, err := s.admit(ctx, rc, block)
	if err != nil {
		w.refuse(run, rc, err)
		w.relief(ctx)
		return
	}
	done := false
	defer func() {
		if !done { // a partitioner or a hook of the user's has panicked
			w.unlock()
		}
	}()
	s.buffer(ctx, run, rc)
	done = true
	w.unlock()
}

func noPromise(*kgo.Record, error) {}

// admit joins the open transaction and takes space for a record. The run is nil
// if the record could not join one. mu is held, and let go of to wait.
func (s *Source) admit(ctx context.Context, rc rec, block bool) (*run, error) {
	w := s.w
	if s.closed {
		return nil, fmt.Errorf("the producer is closed: %w", txnsession.ErrClosed)
	}
	run, err := w.join(ctx)
	if err != nil {
		return nil, err
	}
	if run.err != nil {
		return run, fmt.Errorf("%w: the transaction has failed: %w", txnsession.ErrState, run.err)
	}
	if err := run.refusal(); err != nil {
		return run, err
	}
	switch {
	case rc.r.Topic == "":
		err = errNoTopic
	case w.opts.MaxBufferedBytes > 0 && rc.size > w.opts.MaxBufferedBytes:
		err = &TooLargeError{Topic: rc.r.Topic, Size: clamp(int(rc.size)), Limit: clamp(int(w.opts.MaxBufferedBytes))}
	default:
		err = w.acquire(ctx, run, rc, block)
		if err == kgo.ErrMaxBuffered { //nolint:errorlint // the very value
			return run, err // asked for, so the transaction does not fail
		}
		if err == nil {
			if err = run.refusal(); err != nil {
				w.free([]rec{rc})
				w.space.backlog-- // refuse counts it
			}
			return run, err
		}
	}
	run.fail(err, false)
	return run, err
}

// buffer places a record that has space, or has it wait for its topic.
func (s *Source) buffer(ctx context.Context, r *run, rc rec) {
	w := s.w
	t := s.topic(rc.r.Topic)
	if t.snap == nil && (t.waitingFor != nil || !t.look(w)) {
		if t.waitingFor == nil {
			t.waitingFor = r
			go w.load(t, r)
		}
		t.waiting = append(t.waiting, waitingRec{rc, [2]context.Context{ctx, rc.r.Context}, time.Now()})
		w.watch()
		return
	}
	w.place(ctx, rc.r.Context, r, t, rc)
}

// Flush sends what the writer holds and waits until all of it is answered and
// the last promise has returned, or ctx has ended.
func (s *Source) Flush(ctx context.Context) error { return s.w.flush(ctx, &flusher{}) }

// Close ends the source: Produce is refused with txnsession.ErrClosed from then
// on. If records of it are unsent the open transaction fails, and they with it.
// Close waits until the promises of the source have returned, or ctx has ended.
func (s *Source) Close(ctx context.Context) error {
	w := s.w
	w.mu.Lock()
	s.closed = true
	if r := w.run; r != nil && r.unsent(s) {
		r.fail(fmt.Errorf("the producer was closed before its records were sent: %w", txnsession.ErrClosed), false)
	}
	w.unlock()
	return w.awaitPromises(ctx, &flusher{src: s})
}

// unsent reports whether a record of s has not been sent yet. mu is held.
func (r *run) unsent(s *Source) bool {
	has := func(recs []rec) bool {
		for i := range recs {
			if recs[i].src == s {
				return true
			}
		}
		return false
	}
	for _, p := range r.parts {
		for _, b := range p.queue {
			if b.state < batchSent && has(b.recs) {
				return true
			}
		}
	}
	for _, wt := range r.w.space.waiters {
		if wt.src == s {
			return true
		}
	}
	for _, t := range r.w.topics {
		if t.waitingFor != r {
			continue
		}
		for i := range t.waiting {
			if t.waiting[i].src == s {
				return true
			}
		}
	}
	return false
}
