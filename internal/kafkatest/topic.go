package kafkatest

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopic makes a topic with as many replicas as the cluster has nodes, and
// returns when every node that runs knows the leader of each partition.
func (c *Cluster) CreateTopic(ctx context.Context, name string, partitions int) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 4000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(partitions), int16(c.spec.Nodes)
	req.Topics = append(req.Topics, t)
	var refused error
	tries := 0
	err := poll(ctx, "topic "+name+" is created", func(ctx context.Context) error {
		tries++
		return c.anyNode(ctx, func(ctx context.Context, p peer) error {
			resp, err := req.RequestWith(ctx, p)
			if err != nil {
				return err
			}
			got, err := sole(resp.Topics)
			if err != nil {
				return err
			}
			switch err := kerr.ErrorForCode(got.ErrorCode); {
			case kerr.IsRetriable(err):
				return err
			case errors.Is(err, kerr.TopicAlreadyExists) && tries > 1: // an earlier try made it
			case err != nil:
				refused = fmt.Errorf("kafkatest: create topic %s: %w", name, err)
			}
			return nil
		})
	})
	if err := errors.Join(refused, err); err != nil {
		return err
	}
	return c.eachNode(ctx, func(ctx context.Context, n peer) error {
		return poll(ctx, fmt.Sprintf("node %d knows topic %s", n.id, name), func(ctx context.Context) error {
			leaders, err := n.leaders(ctx, name)
			if err != nil {
				return err
			}
			if len(leaders) != partitions {
				return fmt.Errorf("%d of %d partitions have a leader", len(leaders), partitions)
			}
			return nil
		})
	})
}
