package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ktxn/ktxn/internal/wire"
)

// NodeVersions is what one broker said about itself. It never changes.
type NodeVersions struct {
	max      map[int16]int16
	caps     *kversion.Versions // nil: none
	features map[string]int16
}

// MaxVersion returns the highest version of key that the broker and the
// user's caps allow, -1 if there is none.
func (v *NodeVersions) MaxVersion(key int16) int16 {
	m, ok := v.max[key]
	if !ok {
		return -1
	}
	if v.caps != nil {
		c, ok := v.caps.LookupMaxKeyVersion(key)
		if !ok {
			return -1
		}
		m = min(m, c)
	}
	return m
}

// Feature returns the finalized level of a feature, 0 if absent.
func (v *NodeVersions) Feature(name string) int16 { return v.features[name] }

// versionsAge is how long an answer counts. A cluster can finalize a feature
// without ending a connection.
const versionsAge = 30 * time.Second

// anyNode is the cache entry of whichever broker answers.
const anyNode int32 = -1

// versionCache has the last answer of each node. An answer is dropped when a
// connection to the node is made, or is seen to have ended: the next one may
// lead to a broker that was restarted with another version.
type versionCache struct {
	c *Client

	mu    sync.Mutex // guards what follows
	nodes map[int32]*nodeEntry
}

type nodeEntry struct {
	reconnects int // of the node, to tell an answer from before one
	v          *NodeVersions
	at         time.Time
	asking     *versionsAsk
}

// versionsAsk is one ApiVersions on its way, shared by those who wait.
type versionsAsk struct {
	done chan struct{}
	v    *NodeVersions
	err  error // read after done
}

func (vc *versionCache) init(c *Client) {
	vc.c = c
	vc.nodes = make(map[int32]*nodeEntry)
}

func (vc *versionCache) entry(node int32) *nodeEntry {
	e := vc.nodes[node]
	if e == nil {
		e = new(nodeEntry)
		vc.nodes[node] = e
	}
	return e
}

// forget drops what is known of node. A seed (kgo numbers them far below zero)
// may be any node.
func (vc *versionCache) forget(node int32) {
	vc.mu.Lock()
	defer vc.mu.Unlock()
	drop := func(e *nodeEntry) { e.reconnects, e.v = e.reconnects+1, nil }
	drop(vc.entry(anyNode))
	if node >= 0 {
		drop(vc.entry(node))
	}
}

// NodeVersions returns the versions and finalized features of a broker, of any
// one if node is negative. The answer may be up to 30 s old unless fresh, but
// not older than the newest connection to that broker. It is one try: the
// error is the network's, or ctx's.
func (c *Client) NodeVersions(ctx context.Context, node int32, fresh bool) (*NodeVersions, error) {
	node = max(node, anyNode)
	if fresh {
		return c.versions.ask(ctx, node)
	}
	ask, v := c.versions.join(node)
	if v != nil {
		return v, nil
	}
	select {
	case <-ask.done:
		return ask.v, ask.err
	case <-ctx.Done():
		return nil, ended(ctx, nil)
	}
}

// join returns the cached answer, or the request to wait for.
func (vc *versionCache) join(node int32) (*versionsAsk, *NodeVersions) {
	vc.mu.Lock()
	defer vc.mu.Unlock()
	e := vc.entry(node)
	if e.v != nil && time.Since(e.at) < versionsAge {
		return nil, e.v
	}
	if e.asking != nil {
		return e.asking, nil
	}
	ask := &versionsAsk{done: make(chan struct{})}
	e.asking = ask
	running := vc.c.spawn(func() {
		ask.v, ask.err = vc.ask(vc.c.ctx, node)
		vc.mu.Lock()
		e.asking = nil
		vc.mu.Unlock()
		close(ask.done)
	})
	if !running {
		e.asking, ask.err = nil, kgo.ErrClientClosed
		close(ask.done)
	}
	return ask, nil
}

// ask sends ApiVersions to node, and notes the answer.
func (vc *versionCache) ask(ctx context.Context, node int32) (*NodeVersions, error) {
	cs := vc.c.lookup.conns
	cl, err := cs.client()
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrApiVersionsRequest()
	if sv := cl.OptValues(kgo.SoftwareNameAndVersion); len(sv) == 2 {
		req.ClientSoftwareName, _ = sv[0].(string)
		req.ClientSoftwareVersion, _ = sv[1].(string)
	}
	// Our own request may make the connection. What counts is whether there
	// was another one after it was written.
	var reconnects int
	t := wire.Track(req).OnWritten(func() {
		vc.mu.Lock()
		defer vc.mu.Unlock()
		reconnects = vc.entry(node).reconnects
	})
	resp, err := wire.Send(ctx, cs.broker(cl, node), t)
	if err != nil {
		if node == anyNode {
			cs.next()
		}
		if ctx.Err() != nil && vc.c.ctx.Err() == nil {
			return nil, ended(ctx, nil)
		}
		return nil, fmt.Errorf("asking broker %d for its versions: %w", node, err)
	}
	answer := resp.(*kmsg.ApiVersionsResponse)
	// 35 comes with all keys from a broker that does not know our version.
	if code := answer.ErrorCode; code != 0 && (code != kerr.UnsupportedVersion.Code || len(answer.ApiKeys) < 2) {
		return nil, fmt.Errorf("asking broker %d for its versions: %w", node, codeError(code, ""))
	}
	v := vc.parse(answer)
	vc.mu.Lock()
	defer vc.mu.Unlock()
	if e := vc.entry(node); e.reconnects == reconnects {
		e.v, e.at = v, time.Now()
	}
	return v, nil
}

func (vc *versionCache) parse(answer *kmsg.ApiVersionsResponse) *NodeVersions {
	v := &NodeVersions{
		max:      make(map[int16]int16, len(answer.ApiKeys)),
		caps:     vc.c.laneV,
		features: make(map[string]int16, len(answer.FinalizedFeatures)),
	}
	for _, k := range answer.ApiKeys {
		v.max[k.ApiKey] = k.MaxVersion
	}
	for _, f := range answer.FinalizedFeatures {
		v.features[f.Name] = f.MaxVersionLevel
	}
	return v
}

// mayName reports whether the version caps have a key at all.
func (c *Client) mayName(key int16) bool { return c.laneV == nil || c.laneV.HasKey(key) }

// allowsV2 reports whether the user's caps leave room for the new rules of
// KIP-890. Any one missing would mix old requests with new rules.
func (c *Client) allowsV2() bool {
	if c.userV == nil {
		return true
	}
	for key, lowest := range map[int16]int16{keyProduce: 12, keyEndTxn: 5, keyTxnOffsetCommit: 5} {
		if v, ok := c.userV.LookupMaxKeyVersion(key); !ok || v < lowest {
			return false
		}
	}
	return true
}

// TransactionVersion returns the finalized transaction.version as the
// coordinator of id knows it, any broker for id "". It is 0 if the feature is
// absent, and if the user's version caps do not allow the requests of the new
// rules (Produce v12, EndTxn v5, TxnOffsetCommit v5). An answer may be up to
// 30 s old unless fresh. It tries until a broker answers or ctx ends.
func (c *Client) TransactionVersion(ctx context.Context, id string, fresh bool) (int16, error) {
	if !c.allowsV2() {
		return 0, nil
	}
	var last error
	for attempt := 1; ; attempt++ {
		node := anyNode
		if id != "" {
			var err error
			if node, err = c.coordinators.txn.find(ctx, id); err != nil {
				return 0, err
			}
		}
		v, err := c.NodeVersions(ctx, node, fresh)
		if err == nil {
			return v.Feature(featureTransactionVersion), nil
		}
		if ctx.Err() != nil {
			return 0, ended(ctx, last)
		}
		if again, err := c.mayAskAgain(err); !again {
			return 0, err
		}
		last = err
		if id != "" {
			c.coordinators.txn.forget(id, node)
		}
		c.lookup.conns.refreshBrokers()
		wait := c.backoff(attempt)
		c.retried(Retry{Key: keyAPIVersions, Node: node, Attempt: attempt, Backoff: wait, MaybeSent: true, Err: err})
		if err := sleep(ctx, wait, c.Done()); err != nil {
			if ctx.Err() != nil {
				err = ended(ctx, last)
			}
			return 0, err
		}
	}
}

// mayAskAgain reports whether a failed read-only question may be repeated.
func (c *Client) mayAskAgain(err error) (bool, error) {
	var code *kerr.Error
	switch {
	case c.ctx.Err() != nil || errors.Is(err, kgo.ErrClientClosed):
		return false, kgo.ErrClientClosed
	case untrusted(err):
		return false, err
	case errors.As(err, &code):
		return c.classify(keyAPIVersions, code.Code).Class.Retries(), err
	}
	return c.mayName(keyAPIVersions), err
}
