package transport

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Names of the capabilities, as netclient has them.
const (
	CapTransactionsV2 = "KIP-890"
	CapTwoPhaseCommit = "KIP-939 enable"
	CapKeepPrepared   = "KIP-939 keep prepared"
	CapTxnHeartbeat   = "KIP-1309"
	CapTxnShareAcks   = "KIP-1289"
	CapShareGroups    = "KIP-932"
)

const (
	featureTransactionVersion = "transaction.version"
	featureShareVersion       = "share.version"
)

// Proof is what a broker must show before a draft is used: a finalized feature
// and the keys of its requests. Keys alone prove nothing, since Kafka may give
// a number to something else.
type Proof struct {
	Feature  string           // finalized feature
	MinLevel int16            // its lowest level
	Keys     map[string]int16 // request name to key
}

// defaultDraftKeys are the keys of the drafts until Kafka assigns them.
var defaultDraftKeys = map[string]int16{
	"AddShareAcksToTxn":   keyAddShareAcksToTxn,
	"TxnShareAcknowledge": keyTxnShareAcknowledge,
	"TxnHeartbeat":        keyTxnHeartbeat,
}

// draftRequests are the requests that a capability may name.
var draftRequests = map[string][]string{
	CapTwoPhaseCommit: nil,
	CapKeepPrepared:   nil,
	CapTxnHeartbeat:   {"TxnHeartbeat"},
	CapTxnShareAcks:   {"AddShareAcksToTxn", "TxnShareAcknowledge"},
}

// defaultProofs are what the embedded test cluster shows, and no other broker.
var defaultProofs = map[string]Proof{
	CapKeepPrepared: {Feature: "ktxn.txn.2pc", MinLevel: 1},
	CapTxnHeartbeat: {Feature: "ktxn.txn.heartbeat", MinLevel: 1, Keys: map[string]int16{"TxnHeartbeat": keyTxnHeartbeat}},
	CapTxnShareAcks: {Feature: "ktxn.share.txn", MinLevel: 1, Keys: map[string]int16{
		"AddShareAcksToTxn": keyAddShareAcksToTxn, "TxnShareAcknowledge": keyTxnShareAcknowledge,
	}},
}

// drafts are the proofs and keys in force.
type drafts struct {
	proofs map[string]Proof
	keys   map[string]int16 // request name to key
}

func newDrafts(user map[string]Proof) (drafts, error) {
	d := drafts{proofs: maps.Clone(defaultProofs), keys: make(map[string]int16)}
	for _, name := range slices.Sorted(maps.Keys(user)) {
		if err := checkProof(name, user[name]); err != nil {
			return drafts{}, err
		}
		d.proofs[name] = user[name]
	}
	owner := make(map[int16]string)
	for _, name := range slices.Sorted(maps.Keys(d.proofs)) {
		for _, request := range slices.Sorted(maps.Keys(d.proofs[name].Keys)) {
			key := d.proofs[name].Keys[request]
			if other, taken := owner[key]; taken {
				return drafts{}, fmt.Errorf("draft of %s: key %d is given to both %s and %s", name, key, other, request)
			}
			owner[key] = request
			d.keys[request] = key
		}
	}
	return d, nil
}

func checkProof(name string, p Proof) error {
	requests, known := draftRequests[name]
	switch {
	case !known && slices.Contains([]string{CapTransactionsV2, CapShareGroups}, name):
		return fmt.Errorf("draft of %s: its numbers are settled", name)
	case !known:
		return fmt.Errorf("draft of %q: no such capability", name)
	case p.Feature == "":
		return fmt.Errorf("draft of %s: no feature named, and keys alone prove nothing", name)
	case p.MinLevel < 1:
		return fmt.Errorf("draft of %s: level %d of %s is what every cluster has", name, p.MinLevel, p.Feature)
	case len(requests) > 0 && len(p.Keys) == 0:
		return fmt.Errorf("draft of %s: no key given; it has the requests %v", name, requests)
	}
	for request, key := range p.Keys {
		if !slices.Contains(requests, request) {
			return fmt.Errorf("draft of %s: no request %q; it has %v", name, request, requests)
		}
		if key < 0 {
			return fmt.Errorf("draft of %s: key %d of %s is negative", name, key, request)
		}
		if hasRows(key) && defaultDraftKeys[request] != key || slices.Contains(plainKeys, key) {
			return fmt.Errorf("draft of %s: key %d of %s belongs to %s", name, key, request, KeyName(key))
		}
	}
	return nil
}

// plainKeys are further keys that this module sends.
var plainKeys = []int16{keyJoinGroup, keySyncGroup, keyShareGroupHeartbeat, keyShareFetch, keyShareAcknowledge}

// DraftKey returns the key of a draft request, such as "TxnHeartbeat", and -1
// if the proof in force names none.
func (c *Client) DraftKey(request string) int16 {
	if key, ok := c.drafts.keys[request]; ok {
		return key
	}
	return -1
}

// tableKey returns the key that the retry table has for a key on the wire.
func (c *Client) tableKey(key int16) int16 {
	for request, k := range c.drafts.keys {
		if k == key {
			return defaultDraftKeys[request]
		}
	}
	return key
}

func (c *Client) classify(key, code int16) Row { return rowFor(c.tableKey(key), code) }

// Supports reports whether every broker of the cluster shows the capability,
// and the user's version caps allow it. Every broker is asked each time: one
// that was restarted with another version meanwhile has ended an idle
// connection, which nobody notices before the next use. An error means that
// some broker could not be asked in a few tries, so that nothing is known.
func (c *Client) Supports(ctx context.Context, capability string) (bool, error) {
	shows, err := c.check(capability)
	if err != nil {
		return false, err
	}
	nodes, err := c.Brokers(ctx)
	if err != nil {
		return false, err
	}
	var (
		asking sync.WaitGroup
		show   = make([]bool, len(nodes))
		errs   = make([]error, len(nodes))
	)
	for i, node := range nodes {
		asking.Go(func() { show[i], errs[i] = c.shows(ctx, node, shows) })
	}
	asking.Wait()
	for i := range nodes {
		// One that cannot do it decides, whatever the others would say.
		if errs[i] == nil && !show[i] {
			return false, nil
		}
	}
	for _, err := range errs {
		if err != nil {
			return false, err
		}
	}
	return len(nodes) > 0, nil
}

// supportTries is how often Supports asks a broker that does not answer.
const supportTries = 3

// shows asks one broker.
func (c *Client) shows(ctx context.Context, node int32, shows func(*NodeVersions) bool) (bool, error) {
	for try := 1; ; try++ {
		v, err := c.NodeVersions(ctx, node, true)
		if err == nil {
			return shows(v), nil
		}
		if again, err := c.mayAskAgain(err); !again || ctx.Err() != nil || try == supportTries {
			return false, err
		}
		c.lookup.conns.refreshBrokers()
		if serr := sleep(ctx, c.backoff(try), c.Done()); serr != nil {
			return false, err
		}
	}
}

// check returns what a broker must show for a capability.
func (c *Client) check(capability string) (func(*NodeVersions) bool, error) {
	proof, hasProof := c.drafts.proofs[capability]
	proven := func(v *NodeVersions) bool {
		if hasProof && v.Feature(proof.Feature) < proof.MinLevel {
			return false
		}
		for _, key := range proof.Keys {
			if v.MaxVersion(key) < 0 {
				return false
			}
		}
		return true
	}
	switch capability {
	case CapTransactionsV2:
		return func(v *NodeVersions) bool {
			return c.allowsV2() && v.Feature(featureTransactionVersion) >= 2
		}, nil
	case CapTwoPhaseCommit, CapKeepPrepared:
		return func(v *NodeVersions) bool {
			return v.MaxVersion(keyInitProducerID) >= 6 && proven(v)
		}, nil
	case CapTxnHeartbeat, CapTxnShareAcks:
		return proven, nil
	case CapShareGroups:
		return func(v *NodeVersions) bool {
			return v.Feature(featureShareVersion) >= 1 && v.MaxVersion(keyShareGroupHeartbeat) >= 0 &&
				v.MaxVersion(keyShareFetch) >= 0 && v.MaxVersion(keyShareAcknowledge) >= 0
		}, nil
	}
	return nil, fmt.Errorf("no such capability: %q", capability)
}

// Brokers returns the node ids of the cluster, as one of them knows it now. It
// tries until one answers or ctx ends.
func (c *Client) Brokers(ctx context.Context) ([]int32, error) {
	r := c.lookup.Do(ctx, Call{
		Target: AnyNode(),
		New: func() kmsg.Request {
			req := kmsg.NewPtrMetadataRequest()
			req.Topics = []kmsg.MetadataRequestTopic{}
			return req
		},
		Code: func(resp kmsg.Response) (int16, string) {
			return resp.(*kmsg.MetadataResponse).ErrorCode, ""
		},
	})
	if r.Err != nil {
		return nil, r.Err
	}
	resp := r.Resp.(*kmsg.MetadataResponse)
	nodes := make([]int32, 0, len(resp.Brokers))
	for _, b := range resp.Brokers {
		nodes = append(nodes, b.NodeID)
	}
	slices.Sort(nodes)
	return nodes, nil
}

// Ping returns nil if any broker answers: each is tried once at most. The error
// is the last broker's, or ctx's.
func (c *Client) Ping(ctx context.Context) error {
	err := c.LookupClient().Ping(ctx)
	if err != nil && ctx.Err() != nil {
		return ended(ctx, err)
	}
	return err
}
