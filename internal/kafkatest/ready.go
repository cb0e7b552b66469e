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

// pollEvery is how often a state that nobody announces is asked for.
const pollEvery = 20 * time.Millisecond

// pollTime bounds every wait for a cluster that runs, so that no test hangs whose
// context has no deadline.
const pollTime = time.Minute

// poll calls f until it answers nil, or ctx or pollTime ends: the error then says
// what f answered last.
func poll(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var last error
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kafkatest: waiting until %s: %w (last: %w)", what, context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}

// client is a client of the super user for a few requests.
func (c *Cluster) client(opts ...kgo.Opt) (*kgo.Client, error) {
	base := append(c.Opts(), kgo.DisableClientMetrics(), kgo.RequestRetries(0),
		kgo.MetadataMinAge(10*time.Millisecond), kgo.DialTimeout(2*time.Second))
	cl, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	return cl, nil
}

// awaitNodes waits until each of these nodes answers, lists every node that runs
// and has the features that the spec finalizes. It ends at once when one dies.
func (c *Cluster) awaitNodes(ctx context.Context, nodes []*node) error {
	for _, n := range nodes {
		if err := c.awaitNode(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) awaitNode(ctx context.Context, n *node) error {
	cl, err := c.client(kgo.SeedBrokers(n.addr()))
	if err != nil {
		return err
	}
	defer cl.Close()
	var died error
	err = poll(ctx, fmt.Sprintf("node %d is ready", n.id), func(ctx context.Context) error {
		if _, died = n.running(); died != nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return c.answers(ctx, cl)
	})
	if err := errors.Join(died, err); err != nil {
		return n.failure(err)
	}
	return nil
}

// answers asks the only seed of cl whether it is ready.
func (c *Cluster) answers(ctx context.Context, cl *kgo.Client) error {
	seed := cl.SeedBrokers()[0]
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := meta.RequestWith(ctx, seed)
	if err != nil {
		return err
	}
	alive := 0
	for _, n := range c.nodes {
		if _, err := n.running(); err == nil {
			alive++
		}
	}
	if len(resp.Brokers) < alive || resp.ControllerID < 0 {
		return fmt.Errorf("%d of %d brokers, controller %d", len(resp.Brokers), alive, resp.ControllerID)
	}
	api := kmsg.NewPtrApiVersionsRequest()
	api.ClientSoftwareName, api.ClientSoftwareVersion = "kafkatest", "1"
	versions, err := api.RequestWith(ctx, seed)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(versions.ErrorCode); err != nil {
		return err
	}
	finalized := map[string]int16{}
	for _, f := range versions.FinalizedFeatures {
		finalized[f.Name] = f.MaxVersionLevel
	}
	if finalized["metadata.version"] == 0 {
		return errors.New("no feature is finalized yet")
	}
	for name, want := range map[string]int{"transaction.version": c.spec.TransactionVersion, "share.version": c.spec.ShareVersion} {
		if want != Default && int(finalized[name]) != want {
			return fmt.Errorf("%s is finalized at %d, want %d", name, finalized[name], want)
		}
	}
	return nil
}

// awaitCoordinators makes the internal topics and waits for their coordinators,
// so that no test pays for it, or meets a cluster that cannot make them any more
// because one of its nodes is dead.
func (c *Cluster) awaitCoordinators(ctx context.Context) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	keys := map[int8]string{0: "group", 1: "id"}
	if c.servesShares(ctx, cl) {
		// A share coordinator's key is group:topic id:partition.
		keys[2] = "group:AAAAAAAAAAAAAAAAAAAAAQ:0"
	}
	for kind, key := range keys {
		if _, err := c.findCoordinator(ctx, cl, kind, key); err != nil {
			return err
		}
	}
	return nil
}

// servesShares tells whether the cluster has share groups switched on.
func (c *Cluster) servesShares(ctx context.Context, cl *kgo.Client) bool {
	api := kmsg.NewPtrApiVersionsRequest()
	api.ClientSoftwareName, api.ClientSoftwareVersion = "kafkatest", "1"
	resp, err := api.RequestWith(ctx, cl.SeedBrokers()[0])
	if err != nil {
		return false
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "share.version" && f.MaxVersionLevel > 0 {
			return true
		}
	}
	return false
}

// findCoordinator waits for the coordinator of a key and answers its node.
func (c *Cluster) findCoordinator(ctx context.Context, cl *kgo.Client, kind int8, key string) (int, error) {
	found := -1
	err := poll(ctx, "the coordinator of "+key+" is there", func(ctx context.Context) error {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType = kind
		req.CoordinatorKey = key
		req.CoordinatorKeys = []string{key}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		kresp, err := cl.Request(ctx, req)
		if err != nil {
			return err
		}
		for _, co := range kresp.(*kmsg.FindCoordinatorResponse).Coordinators {
			if err := kerr.ErrorForCode(co.ErrorCode); err != nil {
				return err
			}
			found = int(co.NodeID)
			return nil
		}
		return errors.New("no answer")
	})
	return found, err
}
