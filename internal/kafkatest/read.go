package kafkatest

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ReadCommitted reads a topic as a read_committed consumer sees it now: each
// partition from its start to its last stable offset, partition by partition.
// Records behind an open transaction are not in it. A transaction whose outcome
// is decided counts as decided: the reader waits for its markers.
func ReadCommitted(ctx context.Context, c *Cluster, topic string) ([]*kgo.Record, error) {
	if err := c.awaitDecided(ctx, topic); err != nil {
		return nil, err
	}
	return c.read(ctx, topic, kgo.ReadCommitted(), 1)
}

// ReadUncommitted reads every record of a topic that a read_uncommitted consumer
// sees now, those of aborted and open transactions included, partition by
// partition.
func ReadUncommitted(ctx context.Context, c *Cluster, topic string) ([]*kgo.Record, error) {
	return c.read(ctx, topic, kgo.ReadUncommitted(), 0)
}

func (c *Cluster) read(ctx context.Context, topic string, isolation kgo.IsolationLevel, level int8) ([]*kgo.Record, error) {
	var meta *kmsg.MetadataResponseTopic
	err := c.anyNode(ctx, func(ctx context.Context, p peer) (err error) {
		meta, err = p.metadata(ctx, topic)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("kafkatest: read %s: %w", topic, err)
	}
	var all []*kgo.Record
	for i := range int32(len(meta.Partitions)) {
		r := partitionReader{topic: topic, id: meta.TopicID, partition: i, isolation: isolation, level: level, next: -1, end: -1}
		// Where the reader is survives a failed attempt: leaders move.
		err := poll(ctx, fmt.Sprintf("%s-%d is read", topic, i), func(ctx context.Context) error {
			leader := 0
			err := c.anyNode(ctx, func(ctx context.Context, p peer) error {
				leaders, err := p.leaders(ctx, topic)
				leader = leaders[i]
				return err
			})
			if err != nil {
				return err
			}
			if leader == 0 {
				return kerr.LeaderNotAvailable
			}
			return c.onNode(ctx, leader, r.read)
		})
		if err != nil {
			return nil, err
		}
		all = append(all, r.records...)
	}
	return all, nil
}

// partitionReader reads one partition with requests of its own: a consumer does
// not tell how far it is when the last records before the end are none for it.
type partitionReader struct {
	topic     string
	id        [16]byte
	partition int32
	isolation kgo.IsolationLevel
	level     int8
	next, end int64 // -1 before they are known
	records   []*kgo.Record
}

func (r *partitionReader) read(ctx context.Context, leader peer) error {
	var err error
	if r.end < 0 {
		if r.end, err = r.offset(ctx, leader, -1); err != nil {
			return err
		}
	}
	if r.next < 0 {
		if r.next, err = r.offset(ctx, leader, -2); err != nil {
			return err
		}
	}
	for r.next < r.end {
		if err := r.fetch(ctx, leader); err != nil {
			return err
		}
	}
	return nil
}

// offset lists the start (-2) or the end (-1); the end of a read_committed reader
// is the last stable offset.
func (r *partitionReader) offset(ctx context.Context, leader peer, timestamp int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, r.level
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = r.topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = r.partition, timestamp
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, leader)
	if err != nil {
		return -1, err
	}
	topic, err := sole(resp.Topics)
	if err != nil {
		return -1, err
	}
	got, err := sole(topic.Partitions)
	if err != nil {
		return -1, err
	}
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return -1, err
	}
	return got.Offset, nil
}

func (r *partitionReader) fetch(ctx context.Context, leader peer) error {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel = 500, 1, 50<<20, r.level
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = r.topic, r.id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = r.partition, r.next, 50<<20
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, leader)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	topic, err := sole(resp.Topics)
	if err != nil {
		return err
	}
	answer, err := sole(topic.Partitions)
	if err != nil {
		return err
	}
	got, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: r.next, IsolationLevel: r.isolation, Topic: r.topic, Partition: r.partition,
	}, answer, kgo.DefaultDecompressor(), nil)
	if got.Err != nil {
		return got.Err
	}
	// A batch that began before the end is not read beyond it.
	for _, rec := range got.Records {
		if rec.Offset < r.end {
			r.records = append(r.records, rec)
		}
	}
	r.next = next
	return nil
}
