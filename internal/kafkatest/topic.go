package kafkatest

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopic makes a topic with as many replicas as the cluster has nodes, and
// returns when every node that runs knows the leader of each partition.
func (c *Cluster) CreateTopic(ctx context.Context, name string, partitions int) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 15000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(partitions), int16(c.spec.Nodes)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("kafkatest: create topic %s: %w", name, err)
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("kafkatest: create topic %s: %w", name, err)
		}
	}
	return c.eachNode(ctx, func(ctx context.Context, n peer) error {
		return poll(ctx, fmt.Sprintf("node %d knows topic %s", n.id, name), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
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
