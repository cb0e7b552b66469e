package writer

import (
	"context"

	"github.com/ktxn/ktxn/internal/link"
	"github.com/ktxn/ktxn/txnsession"
)

// txn is what the writer needs of a *txnsession.Txn.
type txn interface {
	ProducerID() int64
	ProducerEpoch() int16
	TransactionVersion() int16
	Own(ctx context.Context, topic string, topicID [16]byte, partition int32) (int32, error)
	Advance(topic string, topicID [16]byte, partition, records int32)
	Wrote(topic string, partition int32, offset int64)
	Fail(err error)
	Ending() <-chan struct{}
}

// session is what the writer needs of a *txnsession.Session.
type session interface {
	Enlist(ctx context.Context, p txnsession.Participant) (txn, error)
	State() txnsession.State
	Err() error
	TransactionalID() string
}

// realSession is a session as users have it.
type realSession struct{ *txnsession.Session }

// Enlist joins p by way of link, so that the context of a Flush passes the gate.
func (s realSession) Enlist(ctx context.Context, p txnsession.Participant) (txn, error) {
	t, err := link.Enlist(ctx, s.Session, p)
	if err != nil {
		return nil, err
	}
	return t.(*txnsession.Txn), nil
}
