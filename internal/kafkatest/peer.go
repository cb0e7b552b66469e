package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// peer is one node as the super user's client sees it. Requests go to this node
// and no other, which hands on to the controller what is the controller's: dead
// nodes do not matter.
type peer struct {
	id int
	cl *kgo.Client
}

// requestTime bounds one request.
const requestTime = 5 * time.Second

// Request makes a peer what kmsg's requests can be sent with.
func (p peer) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	return p.cl.SeedBrokers()[0].Request(ctx, req)
}

// dial makes a client of user for one node.
func (c *Cluster) dial(id int, user string) (peer, error) {
	if id < 1 || id > len(c.seeds) {
		return peer{}, fmt.Errorf("kafkatest: no node %d in a cluster of %d", id, len(c.seeds))
	}
	cl, err := kgo.NewClient(append(c.UserOpts(user), kgo.SeedBrokers(c.seeds[id-1]), kgo.DisableClientMetrics())...)
	if err != nil {
		return peer{}, fmt.Errorf("kafkatest: %w", err)
	}
	return peer{id, cl}, nil
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
	p, err := c.dial(id, SuperUser)
	if err != nil {
		return err
	}
	defer p.cl.Close()
	return f(ctx, p)
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
	got, err := sole(resp.Topics)
	if err != nil {
		return nil, err
	}
	return got, kerr.ErrorForCode(got.ErrorCode)
}

// finalized are the cluster's finalized features, as the node knows them.
func (p peer) finalized(ctx context.Context) (map[string]int16, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "kafkatest", "1"
	resp, err := req.RequestWith(ctx, p)
	if err != nil {
		return nil, err
	}
	finalized := map[string]int16{}
	for _, f := range resp.FinalizedFeatures {
		finalized[f.Name] = f.MaxVersionLevel
	}
	return finalized, kerr.ErrorForCode(resp.ErrorCode)
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

// sole answers the one element of an answer about one thing.
func sole[T any](s []T) (*T, error) {
	if len(s) != 1 {
		return nil, fmt.Errorf("%d of %T in the answer, want 1", len(s), *new(T))
	}
	return &s[0], nil
}
