package examplekit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ReadCommitted returns the records of topic that a read_committed consumer
// sees once no transaction is open in it, by partition and offset. It is kgo's
// consumer and no code of this module.
func (c *Cluster) ReadCommitted(ctx context.Context, topic string) ([]*kgo.Record, error) {
	if err := c.settled(ctx, topic); err != nil {
		return nil, err
	}
	return c.Visible(ctx, topic)
}

// Visible returns what ReadCommitted would if it did not wait: nothing behind a
// transaction that is open now.
func (c *Cluster) Visible(ctx context.Context, topic string) ([]*kgo.Record, error) {
	ends, err := c.admin.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	return c.read(ctx, topic, ends, kgo.ReadCommitted())
}

// ReadUncommitted returns every record of topic, those of aborted and open
// transactions included.
func (c *Cluster) ReadUncommitted(ctx context.Context, topic string) ([]*kgo.Record, error) {
	ends, err := c.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	return c.read(ctx, topic, ends, kgo.ReadUncommitted())
}

// settled returns once no transaction is open in topic: an end is answered when
// it is durable, and its markers follow.
func (c *Cluster) settled(ctx context.Context, topic string) error {
	for {
		open, err := c.hasOpen(ctx, topic)
		if err == nil && !open {
			return nil
		}
		if err == nil {
			err = pause(ctx, 10*time.Millisecond)
		}
		if err != nil {
			return fmt.Errorf("waiting for the end of the transactions in %s: %w", topic, err)
		}
	}
}

// hasOpen reports whether a transaction is open in topic.
func (c *Cluster) hasOpen(ctx context.Context, topic string) (bool, error) {
	stable, err := c.admin.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return false, err
	}
	ends, err := c.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return false, err
	}
	if err := ends.Error(); err != nil {
		return false, err
	}
	open := false
	ends.Each(func(end kadm.ListedOffset) {
		s, ok := stable.Lookup(end.Topic, end.Partition)
		open = open || !ok || s.Offset < end.Offset
	})
	return open, nil
}

// read reads each partition up to its end. Control records are kept while
// reading, or a partition that ends with one would never be read to its end.
func (c *Cluster) read(ctx context.Context, topic string, ends kadm.ListedOffsets, isolation kgo.IsolationLevel) ([]*kgo.Record, error) {
	if err := ends.Error(); err != nil {
		return nil, err
	}
	left := make(map[int32]int64) // the last offset to see
	from := make(map[int32]kgo.Offset)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset - 1
			from[o.Partition] = kgo.NewOffset().AtStart()
		}
	})
	if len(left) == 0 {
		return nil, nil
	}
	cl, err := kgo.NewClient(append(c.Opts(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(100*time.Millisecond), // what is read to its end holds the rest up
	)...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var all []*kgo.Record
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("reading %s: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				all = append(all, r)
			}
			if last, ok := left[r.Partition]; ok && r.Offset >= last {
				delete(left, r.Partition)
			}
		})
	}
	slices.SortFunc(all, func(a, b *kgo.Record) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	return all, nil
}
