package writer

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// placer chooses partitions of one topic for one source. Writer.mu guards it.
type placer struct {
	topic  *topic
	part   kgo.TopicPartitioner
	backup kgo.TopicBackupPartitioner
	batch  kgo.TopicPartitionerOnNewBatch
	iter   backlogIter
}

func newPlacer(t *topic, p kgo.Partitioner) *placer {
	pl := &placer{topic: t, part: p.ForTopic(t.name)}
	pl.backup, _ = pl.part.(kgo.TopicBackupPartitioner)
	pl.batch, _ = pl.part.(kgo.TopicPartitionerOnNewBatch)
	return pl
}

// backlogIter tells a partitioner how much is buffered for each partition that
// it may choose, from the last to the first, as kgo does.
type backlogIter struct {
	run    *run
	topic  *topic
	usable []int // nil: all
	left   int
}

func (i *backlogIter) Rem() int { return i.left }

// Next returns the next index and what is buffered for it. Like kgo's it must
// not be called when nothing is left.
func (i *backlogIter) Next() (int, int64) {
	i.left--
	id := i.left
	if i.usable != nil {
		id = i.usable[i.left]
	}
	if p := i.topic.parts[id]; p != nil && p.run == i.run {
		return i.left, p.records
	}
	return i.left, 0
}

// pick asks the partitioner. A record that has to go to the same partition
// always is not kept from one without a leader.
func (pl *placer) pick(r *run, rec *kgo.Record) (int, error) {
	t := pl.topic
	usable, n := t.writable, len(t.writable)
	if n == 0 || n == len(t.snap.Partitions) || pl.part.RequiresConsistency(rec) {
		usable, n = nil, len(t.snap.Partitions)
	}
	var i int
	if pl.backup != nil {
		pl.iter = backlogIter{r, t, usable, n}
		i = pl.backup.PartitionByBackup(rec, n, &pl.iter)
	} else {
		i = pl.part.Partition(rec, n)
	}
	if i < 0 || i >= n {
		return 0, fmt.Errorf("the partitioner chose %d of %d partitions of topic %q", i, n, t.name)
	}
	if usable != nil {
		i = usable[i]
	}
	return i, nil
}

// place partitions a record and encodes it into a batch. Space has been taken
// for it. mu is held.
func (w *Writer) place(ctx, rctx context.Context, r *run, t *topic, rc rec) {
	pl := rc.src.placer(t)
	ts := rc.r.Timestamp.UnixMilli()
	again := pl.batch != nil
	for {
		i, err := pl.pick(r, rc.r)
		if err != nil {
			w.reject(r, rc, err)
			return
		}
		p := t.part(r, i)
		b := p.open()
		var body, total int
		fits := false
		if b != nil {
			body, total, fits = b.fits(ts, rc.r, t.maxBytes)
		}
		if !fits {
			if again {
				// The partitioner wants to know, and may then choose
				// another one, where the record goes in any case.
				again = false
				pl.batch.OnNewBatch()
				continue
			}
			fresh := batch{}
			if body, total, fits = fresh.fits(ts, rc.r, t.maxBytes); !fits {
				w.reject(r, rc, &TooLargeError{Topic: t.name, Size: clamp(headerLen + total), Limit: int32(t.maxBytes)})
				return
			}
			if b != nil {
				p.close(b)
			}
			b = w.startBatch(p)
		}
		rc.r.Partition = p.id
		b.add(rc, ts, body, total)
		b.heed(ctx)
		if rctx != ctx {
			b.heed(rctx)
		}
		p.records++
		if len(w.hooks.onPartitioned) > 0 {
			w.hooks.partitioned(rc.r, p.leader())
		}
		if len(b.recs) == 1 || b.size() >= t.maxBytes {
			w.startSending(p, b)
		}
		return
	}
}

// reject fails a record that has space, and with it the run.
func (w *Writer) reject(r *run, rc rec, err error) {
	r.fail(err, false)
	w.free([]rec{rc})
	w.pushFreed(r, rc, err)
}

// pushFreed queues the failure of a record whose space is free again.
func (w *Writer) pushFreed(r *run, rc rec, err error) {
	o := &outcome{run: r, err: err, base: -1, appendTime: -1}
	o.one[0] = rc
	o.recs = o.one[:]
	w.push(o)
}

// TooLargeError is the error of a record that does not fit into a batch.
type TooLargeError struct {
	Topic string
	// Size is the length in bytes of a batch of the record alone: before
	// compression if the writer's limit was met, as sent if the broker's.
	Size int32
	// Limit is the limit that it exceeds: ProducerBatchMaxBytes, or
	// MaxBufferedBytes; 0 if it is the broker's, which does not tell it.
	Limit int32
}

// Error says how large the record is.
func (e *TooLargeError) Error() string {
	if e.Limit == 0 {
		return fmt.Sprintf("a record of %d bytes for topic %q is larger than the broker allows", e.Size, e.Topic)
	}
	return fmt.Sprintf("a record of %d bytes for topic %q is larger than the limit of %d", e.Size, e.Topic, e.Limit)
}

// Unwrap returns kerr.MessageTooLarge.
func (e *TooLargeError) Unwrap() error { return kerr.MessageTooLarge }

var errNoTopic = errors.New("the record has no topic and there is no DefaultProduceTopic")

func clamp(n int) int32 { return int32(min(n, 1<<31-1)) }
