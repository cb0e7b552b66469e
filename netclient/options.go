package netclient

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Opt is an option of this package.
type Opt interface {
	kgo.Opt
	netclientOpt()
}

type opt struct {
	kgo.Opt
	apply func(*config)
}

func (opt) netclientOpt() {}

type config struct {
	coordinatorLanes, produceLanes int
}

func newOpt(fn func(*config)) Opt { return opt{kgo.WithHooks(), fn} }

// CoordinatorLanes sets the connections per coordinator node.
func CoordinatorLanes(n int) Opt { return newOpt(func(c *config) { c.coordinatorLanes = n }) }

// ProduceLanes sets the kgo clients that carry Produce.
func ProduceLanes(n int) Opt { return newOpt(func(c *config) { c.produceLanes = n }) }

// DraftAPI switches on a KIP whose numbers are not settled.
func DraftAPI(k Capability, p Proof) Opt { return newOpt(func(*config) {}) }

// Proof is what a broker must show before a draft is used.
type Proof struct {
	Feature  string
	MinLevel int16
	Keys     map[string]int16
}

// Capability names what a cluster may be able to do.
type Capability string

// The capabilities that Supports knows.
const (
	TransactionsV2 Capability = "KIP-890"
	TwoPhaseCommit Capability = "KIP-939 enable"
	KeepPrepared   Capability = "KIP-939 keep prepared"
	TxnHeartbeat   Capability = "KIP-1309"
	TxnShareAcks   Capability = "KIP-1289"
	ShareGroups    Capability = "KIP-932"
)

// Retry is one failed attempt that is going to be repeated.
type Retry struct {
	Key       int16
	Node      int32
	Attempt   int
	Backoff   time.Duration
	MaybeSent bool
	Err       error
}

// HookRetry is called for each retry.
type HookRetry interface{ OnRetry(Retry) }

// HookCoordinatorChange is called when a transaction coordinator moved.
type HookCoordinatorChange interface {
	OnCoordinatorChange(transactionalID string, from, to int32)
}
