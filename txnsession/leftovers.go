package txnsession

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/transport"
)

// Leftover is a transaction that is open at its coordinator, as Leftovers
// found it.
type Leftover struct {
	PreparedTxn
	// State is the coordinator's word for it, "Ongoing".
	State string
	// Timeout is how long it may stay open from its start; a two-phase
	// transaction has the largest there is.
	Timeout time.Duration
	// Partitions are the partitions that take part in it.
	Partitions map[string][]int32
}

// Leftovers lists the open transactions whose transactional id begins with
// prefix, in the order of their ids: what writers that are gone for good have
// left behind. One that is decided and has only its markers to write is not
// among them. It asks every broker, and needs DESCRIBE on the ids; those
// without it are not listed.
//
// To commit one whose PreparedTxn was stored, commit that. To end the others
// use AbortLeftovers, which does not fence; a Session with the same id whose
// Initialize is called aborts and fences.
func (c *Committer) Leftovers(ctx context.Context, prefix string) ([]Leftover, error) {
	const op = "leftovers"
	nodes, err := c.tc.Brokers(ctx)
	if err != nil {
		return nil, &Error{Op: op, Err: err, facts: isJudged}
	}
	var left []Leftover
	for _, node := range nodes {
		ids, err := c.openIDs(ctx, node, prefix)
		if err != nil {
			return nil, &Error{Op: op, Err: err, facts: isJudged}
		}
		// A batch keeps requests and answers of bounded size.
		for batch := range slices.Chunk(ids, 500) {
			found, err := c.describeAll(ctx, node, batch)
			if err != nil {
				return nil, &Error{Op: op, Err: err, facts: isJudged}
			}
			left = append(left, found...)
		}
	}
	slices.SortFunc(left, func(a, b Leftover) int { return strings.Compare(a.TransactionalID, b.TransactionalID) })
	return left, nil
}

// AbortLeftovers aborts the transactions. WasAborted is the good status here,
// with a nil error; one that was committed meanwhile is WasCommitted.
func (c *Committer) AbortLeftovers(ctx context.Context, left []Leftover) CommitResults {
	results := make(CommitResults, len(left))
	all := func(yield func(int, PreparedTxn) bool) {
		for i, l := range left {
			if !yield(i, l.PreparedTxn) {
				return
			}
		}
	}
	for r := range c.run(ctx, all, false) {
		results[r.index] = r.CommitResult
	}
	return results
}

// openIDs returns the ids with prefix that node coordinates and that have an
// open transaction. The pattern (KIP-1152) saves brokers that know it from
// sending the others.
func (c *Committer) openIDs(ctx context.Context, node int32, prefix string) ([]string, error) {
	res := c.ask(ctx, node, transport.Call{
		New: func() kmsg.Request {
			req := kmsg.NewPtrListTransactionsRequest()
			req.StateFilters = []string{"Ongoing"}
			if prefix != "" {
				req.TransactionalIDPattern = kmsg.StringPtr(regexp.QuoteMeta(prefix) + ".*")
			}
			return req
		},
		Code: func(r kmsg.Response) (int16, string) { return r.(*kmsg.ListTransactionsResponse).ErrorCode, "" },
	})
	if res.Err != nil {
		return nil, res.Err
	}
	var ids []string
	for _, t := range res.Resp.(*kmsg.ListTransactionsResponse).TransactionStates {
		if strings.HasPrefix(t.TransactionalID, prefix) {
			ids = append(ids, t.TransactionalID)
		}
	}
	return ids, nil
}

// ask asks one broker, until ctx ends or the cluster no longer has it.
func (c *Committer) ask(ctx context.Context, node int32, call transport.Call) transport.Result {
	call.Target = transport.Node(node)
	for {
		res := c.tc.Lookup().Do(ctx, call)
		if res.Class != transport.ClassRefresh || ctx.Err() != nil {
			return res
		}
		// It could not be reached, or is starting.
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			res.Err = fmt.Errorf("%w: %w", context.Cause(ctx), res.Err)
			return res
		}
		if nodes, err := c.tc.Brokers(ctx); err != nil || !slices.Contains(nodes, node) {
			return res
		}
	}
}

const askAgain = 20 * time.Millisecond

func (c *Committer) describeAll(ctx context.Context, node int32, ids []string) ([]Leftover, error) {
	res := c.ask(ctx, node, transport.Call{
		New: func() kmsg.Request {
			req := kmsg.NewPtrDescribeTransactionsRequest()
			req.TransactionalIDs = ids
			return req
		},
	})
	if res.Err != nil {
		return nil, res.Err
	}
	var left []Leftover
	for _, st := range res.Resp.(*kmsg.DescribeTransactionsResponse).TransactionStates {
		if st.ErrorCode != 0 || st.State != "Ongoing" {
			continue // it has ended, or moved to another broker, since
		}
		version, err := c.tc.TransactionVersion(ctx, st.TransactionalID, false)
		if err != nil {
			return nil, err
		}
		l := Leftover{
			PreparedTxn: PreparedTxn{
				TransactionalID: st.TransactionalID, ProducerID: st.ProducerID, ProducerEpoch: st.ProducerEpoch,
				TransactionVersion: version, StartMillis: st.StartTimestamp,
			},
			State: st.State, Timeout: time.Duration(st.TimeoutMillis) * time.Millisecond,
			Partitions: make(map[string][]int32, len(st.Topics)),
		}
		for _, topic := range st.Topics {
			l.Partitions[topic.Topic] = topic.Partitions
		}
		left = append(left, l)
	}
	return left, nil
}
