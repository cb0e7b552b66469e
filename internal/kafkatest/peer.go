package kafkatest

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// peer is one node as a client sees it, reached by its address alone.
type peer struct {
	id int
	*kgo.Broker
}

// eachNode calls f for each node, one after another; nodes that this process
// knows to be killed or stopped are left out.
func (c *Cluster) eachNode(ctx context.Context, f func(context.Context, peer) error) error {
	for i := range c.seeds {
		if c.nodes != nil && !c.nodes[i].reachable() {
			continue
		}
		if err := c.onNode(ctx, i+1, f); err != nil {
			return err
		}
	}
	return nil
}

// anyNode calls f for the first node, in the order of ids, that this process does
// not know to be killed or stopped.
func (c *Cluster) anyNode(ctx context.Context, f func(context.Context, peer) error) error {
	for i := range c.seeds {
		if c.nodes == nil || c.nodes[i].reachable() {
			return c.onNode(ctx, i+1, f)
		}
	}
	return errors.New("kafkatest: no node is running")
}

// onNode calls f for one node.
func (c *Cluster) onNode(ctx context.Context, id int, f func(context.Context, peer) error) error {
	if id < 1 || id > len(c.seeds) {
		return fmt.Errorf("kafkatest: no node %d in a cluster of %d", id, len(c.seeds))
	}
	cl, err := c.client(kgo.SeedBrokers(c.seeds[id-1]))
	if err != nil {
		return err
	}
	defer cl.Close()
	return f(ctx, peer{id, cl.SeedBrokers()[0]})
}

// metadata is what the node knows of a topic.
func (p peer) metadata(ctx context.Context, topic string) (*kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, p)
	if err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 {
		return nil, fmt.Errorf("%d topics in the answer", len(resp.Topics))
	}
	return &resp.Topics[0], kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// leaders are the leading nodes by partition, as the node knows them; partitions
// without one are left out.
func (p peer) leaders(ctx context.Context, topic string) (map[int32]int, error) {
	meta, err := p.metadata(ctx, topic)
	if err != nil {
		return nil, err
	}
	leaders := map[int32]int{}
	for _, pt := range meta.Partitions {
		if pt.ErrorCode == 0 && pt.Leader >= 0 {
			leaders[pt.Partition] = int(pt.Leader)
		}
	}
	return leaders, nil
}
