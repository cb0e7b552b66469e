package faultnet

import (
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// learn takes the node ids and addresses from the body of a Metadata answer.
func (n *Net) learn(version int16, body []byte) {
	resp := kmsg.NewPtrMetadataResponse()
	resp.SetVersion(version)
	if resp.ReadFrom(body) != nil || len(resp.Brokers) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.brokers = resp.Brokers
	for _, b := range resp.Brokers {
		n.nodes[hostPort(b)] = b.NodeID
	}
}

func hostPort(b kmsg.MetadataResponseBroker) string {
	return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
}

func (n *Net) nodeLocked(addr string) int32 {
	if node, ok := n.nodes[addr]; ok {
		return node
	}
	return Any
}

// Addr returns the address that Metadata answers last named for a node.
func (n *Net) Addr(node int32) (addr string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.brokers {
		if b.NodeID == node {
			return hostPort(b), true
		}
	}
	return "", false
}
