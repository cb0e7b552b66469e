package txnsession

import (
	"github.com/ktxn/ktxn/netclient"
)

// Resume returns a session for a transaction that another process prepared,
// from its transactional id, producer id and epoch alone. It does no I/O, does
// not fence, and begins in StatePrepared: only Commit, Abort, Complete,
// Outcome, Heartbeat and Close may be called. Once the transaction has ended
// the session is in StateClosed, since the next epoch belongs to the writer.
// Close sends nothing: the transaction stays as it is.
//
// Below transaction.version 2 such a triple does not name one transaction;
// its end is refused with [ErrTransactionVersion] unless
// [AllowResumeOldRules]. ResumePrepared knows more.
func Resume(nc *netclient.Client, transactionalID string, producerID int64, producerEpoch int16, opts ...Opt) (*Session, error) {
	return ResumePrepared(nc, PreparedTxn{
		TransactionalID: transactionalID, ProducerID: producerID, ProducerEpoch: producerEpoch, TransactionVersion: -1,
	}, opts...)
}

// ResumePrepared is Resume with what p knows more: its witness, by which an
// outcome can be found out later, and what tells it from other transactions
// under old rules. An empty p is committed and aborted without a request.
func ResumePrepared(nc *netclient.Client, p PreparedTxn, opts ...Opt) (*Session, error) {
	const op = "resume"
	s, err := newSession(op, nc, p.TransactionalID, opts)
	if err != nil {
		return nil, err
	}
	if err := p.valid(); err != nil {
		return nil, &Error{Op: op, Err: err, facts: isNeverSent}
	}
	s.kind.Resumed = true
	s.state = StatePrepared
	s.ident = identity{p.ProducerID, p.ProducerEpoch}
	t := s.newTransaction(s.ident, max(p.TransactionVersion, 0))
	t.gateLocked()
	t.sealed, t.wasPrepared, t.from, t.witness = true, true, p, p.Witness
	t.worked = !p.Empty
	s.txn = t
	return s, nil
}
