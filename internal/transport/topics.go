package transport

import (
	"context"
	"time"
)

// Topic is one topic as a broker described it. It never changes.
type Topic struct {
	Name       string
	ID         [16]byte // zero: the cluster has no topic ids
	Partitions []Partition
	Err        error // of the topic, such as kerr.UnknownTopicOrPartition
	At         time.Time
}

// Partition is one partition of a Topic.
type Partition struct {
	Leader      int32 // -1: none
	LeaderEpoch int32 // -1: unknown
	Err         error
}

// CachedTopic returns what is known of a topic, nil if nothing is.
func (c *Client) CachedTopic(name string) *Topic { return nil }

// Topic returns what is known of a topic, and loads it if nothing is.
func (c *Client) Topic(ctx context.Context, name string) (*Topic, error) { return nil, ctx.Err() }

// RefreshTopics loads topics again.
func (c *Client) RefreshTopics(names ...string) <-chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}

// LeaderHint notes the leader that a broker named in an error answer.
func (c *Client) LeaderHint(topic string, partition, leader, epoch int32) {}
