package kafkatest

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kill ends a node with SIGKILL and returns when it is gone. Its data stays for
// Restart. A shared cluster answers [ErrShared].
func (c *Cluster) Kill(id int) error {
	return c.disturb(id, func(n *node) error {
		p, err := n.running()
		if err != nil {
			return err
		}
		p.kill()
		return nil
	})
}

// Stop freezes a node with SIGSTOP: its connections stay open and nobody
// answers, until Continue. A shared cluster answers [ErrShared].
func (c *Cluster) Stop(id int) error {
	return c.disturb(id, func(n *node) error { return n.signal(pause, true) })
}

// Continue lets a stopped node go on. A shared cluster answers [ErrShared].
func (c *Cluster) Continue(id int) error {
	return c.disturb(id, func(n *node) error { return n.signal(resume, false) })
}

// Restart starts a node again on its ports and data, after killing it if it still
// runs, and returns when it serves and has caught up as a replica. Expect some
// seconds: the node is refused while the session of its former life lasts. ctx
// bounds the wait, not the node's life. A shared cluster answers [ErrShared].
func (c *Cluster) Restart(ctx context.Context, id int) error {
	return c.disturb(id, func(n *node) error {
		if p, err := n.running(); err == nil {
			p.kill()
		}
		if err := n.start(c.inst.java); err != nil {
			return err
		}
		if err := c.awaitNode(ctx, n); err != nil {
			return err
		}
		return c.onNode(ctx, n.id, func(ctx context.Context, p peer) error {
			return poll(ctx, fmt.Sprintf("node %d is in sync", n.id), p.inSync)
		})
	})
}

// disturb calls f for a node of a cluster that nobody else uses.
func (c *Cluster) disturb(id int, f func(*node) error) error {
	if c.shared {
		return ErrShared
	}
	if id < 1 || id > len(c.nodes) {
		return fmt.Errorf("kafkatest: no node %d in a cluster of %d", id, len(c.nodes))
	}
	return f(c.nodes[id-1])
}

// inSync answers nil when the node is an in-sync replica of each partition that it
// has a replica of and that has a leader.
func (p peer) inSync(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest() // nil topics: all
	resp, err := req.RequestWith(ctx, p)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, pt := range t.Partitions {
			if pt.Leader >= 0 && slices.Contains(pt.Replicas, int32(p.id)) && !slices.Contains(pt.ISR, int32(p.id)) {
				return fmt.Errorf("%s-%d is not in sync", *t.Topic, pt.Partition)
			}
		}
	}
	return nil
}
