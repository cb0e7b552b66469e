package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// transactionTopic is where the transaction coordinators keep their state.
const transactionTopic = "__transaction_state"

// MoveLeader makes node the leader of a partition: it gets a replica there if it
// has none, becomes the preferred leader and is elected. It returns when every
// reachable node knows. On a shared cluster move only partitions of your own.
func (c *Cluster) MoveLeader(ctx context.Context, topic string, partition int32, node int) error {
	var replicas []int32
	err := c.anyNode(ctx, func(ctx context.Context, p peer) error {
		meta, err := p.metadata(ctx, topic)
		if err != nil {
			return fmt.Errorf("kafkatest: %s: %w", topic, err)
		}
		for _, pt := range meta.Partitions {
			if pt.Partition == partition {
				replicas = pt.Replicas
				return nil
			}
		}
		return fmt.Errorf("kafkatest: %s has no partition %d", topic, partition)
	})
	if err != nil {
		return err
	}
	want := append([]int32{int32(node)}, slices.DeleteFunc(slices.Clone(replicas), func(r int32) bool { return r == int32(node) })...)
	want = want[:len(replicas)]
	what := fmt.Sprintf("node %d leads %s-%d", node, topic, partition)
	err = poll(ctx, what, func(ctx context.Context) error {
		return c.anyNode(ctx, func(ctx context.Context, p peer) error {
			if leaders, err := p.leaders(ctx, topic); err != nil || leaders[partition] == node {
				return err
			}
			if err := p.reassign(ctx, topic, partition, want); err != nil {
				return err
			}
			if err := p.elect(ctx, topic, partition); err != nil {
				return err
			}
			return errors.New("elected, not known yet")
		})
	})
	if err != nil {
		return err
	}
	return c.eachNode(ctx, func(ctx context.Context, p peer) error {
		return poll(ctx, fmt.Sprintf("node %d knows that %s", p.id, what), func(ctx context.Context) error {
			leaders, err := p.leaders(ctx, topic)
			if err == nil && leaders[partition] != node {
				err = fmt.Errorf("it knows node %d", leaders[partition])
			}
			return err
		})
	})
}

// reassign asks for these replicas; the first one is the preferred leader.
func (p peer) reassign(ctx context.Context, topic string, partition int32, replicas []int32) error {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 5000
	t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	t.Topic = topic
	pt := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	pt.Partition, pt.Replicas = partition, replicas
	t.Partitions = append(t.Partitions, pt)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, p)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	got, err := sole(resp.Topics)
	if err != nil {
		return err
	}
	part, err := sole(got.Partitions)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(part.ErrorCode)
}

// elect makes the preferred leader the leader.
func (p peer) elect(ctx context.Context, topic string, partition int32) error {
	req := kmsg.NewPtrElectLeadersRequest()
	req.TimeoutMillis = 5000
	t := kmsg.NewElectLeadersRequestTopic()
	t.Topic, t.Partitions = topic, []int32{partition}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, p)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	got, err := sole(resp.Topics)
	if err != nil {
		return err
	}
	part, err := sole(got.Partitions)
	if err != nil {
		return err
	}
	err = kerr.ErrorForCode(part.ErrorCode)
	if errors.Is(err, kerr.ElectionNotNeeded) {
		return nil
	}
	return err
}

// CoordinatorOf answers the node that coordinates a transactional id.
func (c *Cluster) CoordinatorOf(ctx context.Context, transactionalID string) (int, error) {
	return c.findCoordinator(ctx, 1, transactionalID)
}

// MoveCoordinator makes node the coordinator of a transactional id, and of those
// that share its partition, and returns when it serves. On a shared cluster
// others may move it back.
func (c *Cluster) MoveCoordinator(ctx context.Context, transactionalID string, node int) error {
	partitions := 0
	err := c.anyNode(ctx, func(ctx context.Context, p peer) error {
		meta, err := p.metadata(ctx, transactionTopic)
		if err == nil {
			partitions = len(meta.Partitions)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("kafkatest: %s: %w", transactionTopic, err)
	}
	if err := c.MoveLeader(ctx, transactionTopic, partitionOf(transactionalID, partitions), node); err != nil {
		return err
	}
	return c.onNode(ctx, node, func(ctx context.Context, p peer) error {
		return poll(ctx, fmt.Sprintf("node %d coordinates %s", node, transactionalID), func(ctx context.Context) error {
			_, err := p.describeTxn(ctx, transactionalID)
			if errors.Is(err, kerr.TransactionalIDNotFound) {
				return nil // loaded, and it has never seen the id
			}
			return err
		})
	})
}

// partitionOf is the partition of __transaction_state that holds an id: Java's
// String.hashCode modulo the number of partitions.
func partitionOf(id string, partitions int) int32 {
	var h int32
	for _, u := range utf16.Encode([]rune(id)) {
		h = 31*h + int32(u)
	}
	// The magnitude of the smallest number does not fit: Java takes 0 there.
	if h == -1<<31 {
		h = 0
	}
	return max(h, -h) % int32(partitions)
}
