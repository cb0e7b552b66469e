package netclient

import "github.com/ktxn/ktxn/internal/transport"

// Capability names something that only some clusters can do.
type Capability string

// The capabilities that [Client.Supports] knows.
const (
	// TransactionsV2: partitions register by Produce, and every end of a
	// transaction moves the epoch (KIP-890; transaction.version 2).
	TransactionsV2 Capability = transport.CapTransactionsV2
	// TwoPhaseCommit: transactions without a time limit (KIP-939,
	// InitProducerId v6). The broker's configuration may still refuse it.
	TwoPhaseCommit Capability = transport.CapTwoPhaseCommit
	// KeepPrepared: a new owner of the id can keep the transaction that is
	// ongoing (KIP-939).
	KeepPrepared Capability = transport.CapKeepPrepared
	// TxnHeartbeat: sessions that time out without a sign of life (KIP-1309).
	TxnHeartbeat Capability = transport.CapTxnHeartbeat
	// TxnShareAcks: acknowledgements of a share group that take effect with
	// a transaction (KIP-1289).
	TxnShareAcks Capability = transport.CapTxnShareAcks
	// ShareGroups: share groups (KIP-932; share.version 1).
	ShareGroups Capability = transport.CapShareGroups
)
