package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// pollEvery is how often a state that nobody announces is asked for.
const pollEvery = 20 * time.Millisecond

// pollTime bounds every wait for a cluster that runs, so that no test hangs whose
// context has no deadline.
const pollTime = 2 * time.Minute

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
	var died error
	err := c.onNode(ctx, n.id, func(ctx context.Context, p peer) error {
		return poll(ctx, fmt.Sprintf("node %d is ready", n.id), func(ctx context.Context) error {
			if _, died = n.running(); died == nil {
				return c.ready(ctx, p)
			}
			return nil // nothing to wait for
		})
	})
	if err := errors.Join(died, err); err != nil {
		return n.failure(err)
	}
	return nil
}

// ready answers nil when the node serves.
func (c *Cluster) ready(ctx context.Context, p peer) error {
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := meta.RequestWith(ctx, p)
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
	finalized, err := p.finalized(ctx)
	if err != nil {
		return err
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
	keys := map[int8]string{0: "group", 1: "id"}
	err := c.anyNode(ctx, func(ctx context.Context, p peer) error {
		finalized, err := p.finalized(ctx)
		if finalized["share.version"] > 0 {
			// A share coordinator's key is group:topic id:partition.
			keys[2] = "group:AAAAAAAAAAAAAAAAAAAAAQ:0"
		}
		return err
	})
	if err != nil {
		return err
	}
	for kind, key := range keys {
		if _, err := c.findCoordinator(ctx, kind, key); err != nil {
			return err
		}
	}
	return nil
}

// findCoordinator waits for the coordinator of a key and answers its node.
func (c *Cluster) findCoordinator(ctx context.Context, kind int8, key string) (int, error) {
	found := -1
	err := poll(ctx, "the coordinator of "+key+" is there", func(ctx context.Context) error {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType = kind
		req.CoordinatorKey = key
		req.CoordinatorKeys = []string{key}
		return c.anyNode(ctx, func(ctx context.Context, p peer) error {
			resp, err := req.RequestWith(ctx, p)
			if err != nil {
				return err
			}
			got, err := sole(resp.Coordinators)
			if err != nil {
				return err
			}
			found = int(got.NodeID)
			return kerr.ErrorForCode(got.ErrorCode)
		})
	})
	return found, err
}
