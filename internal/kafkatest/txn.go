package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Txn is what a coordinator tells of a transactional id.
type Txn struct {
	TransactionalID string
	State           string // "Ongoing", "PrepareCommit", "CompleteCommit", ..., "Empty"
	ProducerID      int64
	Epoch           int16
	Timeout         time.Duration
	Start           time.Time          // zero unless a transaction is open
	Topics          map[string][]int32 // partitions in the transaction
}

// ending tells whether the outcome is decided and not yet written everywhere.
func (t Txn) ending() bool { return t.State == "PrepareCommit" || t.State == "PrepareAbort" }

// DescribeTxn asks the coordinator about a transactional id, and waits while the
// coordinator moves or loads. An id that it does not know is
// kerr.TransactionalIDNotFound.
func DescribeTxn(ctx context.Context, c *Cluster, transactionalID string) (Txn, error) {
	var txn Txn
	var unknown error
	err := poll(ctx, transactionalID+" is described", func(ctx context.Context) error {
		node, err := c.findCoordinator(ctx, 1, transactionalID)
		if err != nil {
			return err
		}
		err = c.onNode(ctx, node, func(ctx context.Context, p peer) error {
			txn, err = p.describeTxn(ctx, transactionalID)
			return err
		})
		if errors.Is(err, kerr.TransactionalIDNotFound) || errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
			unknown, err = fmt.Errorf("kafkatest: describe %s: %w", transactionalID, err), nil
		}
		return err
	})
	return txn, errors.Join(unknown, err)
}

// AwaitTxn is DescribeTxn after the end: it waits until a decided outcome is
// written to every partition.
func AwaitTxn(ctx context.Context, c *Cluster, transactionalID string) (Txn, error) {
	var txn Txn
	var failed error
	err := poll(ctx, transactionalID+" has its markers", func(ctx context.Context) error {
		if txn, failed = DescribeTxn(ctx, c, transactionalID); failed == nil && txn.ending() {
			return errors.New(txn.State)
		}
		return nil
	})
	return txn, errors.Join(failed, err)
}

// describeTxn asks a node that should be the coordinator.
func (p peer) describeTxn(ctx context.Context, id string) (Txn, error) {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	resp, err := req.RequestWith(ctx, p)
	if err != nil {
		return Txn{}, err
	}
	s, err := sole(resp.TransactionStates)
	if err != nil {
		return Txn{}, err
	}
	if err := kerr.ErrorForCode(s.ErrorCode); err != nil {
		return Txn{}, err
	}
	t := Txn{
		TransactionalID: id, State: s.State, ProducerID: s.ProducerID, Epoch: s.ProducerEpoch,
		Timeout: time.Duration(s.TimeoutMillis) * time.Millisecond, Topics: map[string][]int32{},
	}
	if s.StartTimestamp >= 0 {
		t.Start = time.UnixMilli(s.StartTimestamp)
	}
	for _, topic := range s.Topics {
		t.Topics[topic.Topic] = topic.Partitions
	}
	return t, nil
}

// awaitDecided waits until no decided transaction has markers left to write into
// the topic, as far as the coordinators that run can know.
func (c *Cluster) awaitDecided(ctx context.Context, topic string) error {
	return c.eachNode(ctx, func(ctx context.Context, p peer) error {
		return poll(ctx, "decided transactions are written to "+topic, func(ctx context.Context) error {
			// What a dead coordinator decided, its successor will know.
			if err := c.coordinatorsRun(ctx, p); err != nil {
				return err
			}
			req := kmsg.NewPtrListTransactionsRequest()
			req.StateFilters = []string{"PrepareCommit", "PrepareAbort"}
			resp, err := req.RequestWith(ctx, p)
			if err != nil {
				return err
			}
			if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
				return err
			}
			for _, s := range resp.TransactionStates {
				txn, err := p.describeTxn(ctx, s.TransactionalID)
				if err == nil && txn.ending() && txn.Topics[topic] != nil {
					return fmt.Errorf("%s is %s", txn.TransactionalID, txn.State)
				}
			}
			return nil
		})
	})
}

// coordinatorsRun answers nil when each partition of the coordinators' topic is
// led by a node that is not known to be killed or stopped.
func (c *Cluster) coordinatorsRun(ctx context.Context, p peer) error {
	meta, err := p.metadata(ctx, transactionTopic)
	if err != nil {
		return err
	}
	for _, pt := range meta.Partitions {
		leader := int(pt.Leader)
		if leader < 1 || c.nodes != nil && !c.nodes[leader-1].reachable() {
			return fmt.Errorf("%s-%d waits for a leader", transactionTopic, pt.Partition)
		}
	}
	return nil
}
