package writer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/transport"
)

// topic is what the writer knows of a topic. Writer.mu guards it.
type topic struct {
	name     string
	order    int // of first use, to group a request by topic
	maxBytes int // of a batch

	snap     *transport.Topic // nil until it is known
	writable []int            // partitions with a leader
	parts    []*partition     // by id; those of another run are stale

	waiting    []waitingRec // until the topic is known
	waitingFor *run

	held       []*partition // until metadata is refreshed
	refreshing bool
}

// waitingRec is a record of a topic that is not known yet.
type waitingRec struct {
	rec
	ctxs [2]context.Context
	born time.Time
}

// topicOf returns the topic, making it at first use.
func (w *Writer) topicOf(name string) *topic {
	t := w.topics[name]
	if t == nil {
		t = &topic{name: name, order: len(w.topics), maxBytes: w.batchLimit(name)}
		w.topics[name] = t
	}
	return t
}

// batchLimit is how large a batch of a topic may become.
func (w *Writer) batchLimit(topic string) int {
	return min(int(w.opts.BatchMaxBytes(topic)), w.maxBatch-len(topic))
}

// look takes up what is cached of the topic, and reports whether partitions are
// known.
func (t *topic) look(w *Writer) bool {
	snap := w.cluster.CachedTopic(t.name)
	if snap == nil || snap == t.snap {
		return t.snap != nil
	}
	if snap.Err != nil || len(snap.Partitions) == 0 {
		return t.snap != nil
	}
	t.snap = snap
	t.writable = t.writable[:0]
	for i := range snap.Partitions {
		if p := &snap.Partitions[i]; p.Leader >= 0 && p.Err == nil {
			t.writable = append(t.writable, i)
		}
	}
	for len(t.parts) < len(snap.Partitions) {
		t.parts = append(t.parts, nil)
	}
	return true
}

// part returns partition i as r writes it.
func (t *topic) part(r *run, i int) *partition {
	p := t.parts[i]
	if p == nil || p.run != r {
		p = &partition{run: r, topic: t, id: int32(i)}
		t.parts[i] = p
		r.parts = append(r.parts, p)
	}
	return p
}

// load loads a topic until its partitions are known, then places the records
// that wait for them, or fails them.
func (w *Writer) load(t *topic, r *run) {
	unknown := int64(0)
	for try := 1; ; try++ {
		err := w.loadOnce(r.ctx, t.name, try)
		w.mu.Lock()
		if t.waitingFor != r {
			w.unlock()
			return // dropped
		}
		if t.look(w) {
			w.placeWaiting(t, r)
			w.unlock()
			return
		}
		fatal := false
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			unknown++
			fatal = w.opts.UnknownRetries >= 0 && unknown > w.opts.UnknownRetries
		case err != nil:
			var ke *kerr.Error
			fatal = errors.As(err, &ke) && !ke.Retriable || errors.Is(err, kgo.ErrClientClosed)
		}
		if fatal {
			r.fail(fmt.Errorf("topic %q: %w", t.name, err), false)
			w.unlock()
			return
		}
		w.unlock()
		if !sleep(r.ctx, w.backoff(try)) {
			return
		}
	}
}

// loadOnce asks for the topic once more.
func (w *Writer) loadOnce(ctx context.Context, name string, try int) error {
	if try > 1 {
		select {
		case <-w.cluster.RefreshTopics(name):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	snap, err := w.cluster.Topic(ctx, name)
	if err == nil && snap != nil {
		err = snap.Err
	}
	return err
}

// placeWaiting partitions what has waited for the topic to be known.
func (w *Writer) placeWaiting(t *topic, r *run) {
	waiting := t.waiting
	t.waiting, t.waitingFor = nil, nil
	for i := range waiting {
		wr := &waiting[i]
		if err := r.refusal(); err != nil {
			w.free([]rec{wr.rec})
			w.pushFreed(r, wr.rec, err)
			continue
		}
		w.place(wr.ctxs[0], wr.ctxs[1], r, t, wr.rec)
	}
}

// dropWaiting fails what waits for the topic to be known.
func (w *Writer) dropWaiting(t *topic, err error) {
	r, waiting := t.waitingFor, t.waiting
	t.waiting, t.waitingFor = nil, nil
	for i := range waiting {
		w.free([]rec{waiting[i].rec})
		w.pushFreed(r, waiting[i].rec, err)
	}
}

// checkTopics fails the run if a topic that it wrote to is known to have been
// deleted and made again: its records went with the old one.
func (r *run) checkTopics() {
	for _, p := range r.parts {
		if p.own != owned {
			continue
		}
		if snap := r.w.cluster.CachedTopic(p.topic.name); snap != nil && p.recreated(snap) {
			r.fail(p.errorf(errRecreated), false)
			return
		}
	}
}

var errRecreated = fmt.Errorf("the topic was deleted and made again during the transaction: %w", kerr.UnknownTopicID)

// recreated reports whether snap is of another topic of the same name.
func (p *partition) recreated(snap *transport.Topic) bool {
	var none [16]byte
	return p.own != unowned && p.topicID != none && snap.ID != none && snap.ID != p.topicID
}

func (p *partition) errorf(err error) error {
	return fmt.Errorf("partition %d of topic %q: %w", p.id, p.topic.name, err)
}

// sleep waits for d, and reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
