// Package netclient is the network side that sessions, producers and share
// consumers have in common. One Client serves a cluster and a set of
// credentials, for any number of sessions.
//
// # Overview
//
// A Client owns several kgo clients, its lanes. Requests that end transactions
// and heartbeats have lanes of their own, and so has Produce: in one kgo
// client an EndTxn waits behind the dial and the throttling of a Produce, and
// on one connection behind every answer that the broker owes. Look-ups have a
// lane too, which [Client.KgoClient] shows, for kadm and the like.
//
// Nothing is dialed before it is needed.
//
// # Options
//
// [New] takes kgo's own options, those that belong to a client: seeds, TLS,
// SASL, logger, hooks, timeouts, version caps. Options for producing and
// consuming are refused by name, since they belong elsewhere. The lanes
// overrule three of them: client metrics are off, acks are those of all
// replicas, and the version caps let the requests of [DraftAPI] pass. Caps
// below what the new rules of KIP-890 need (Produce v12, EndTxn v5,
// TxnOffsetCommit v5) mean that sessions keep to the old rules.
//
// # Retries
//
// Requests are repeated until an answer decides or the caller's context ends:
// the context is the budget, attempts are not counted. What each answer means
// is in docs/retries.md. [HookRetry] sees every repetition. An attempt whose
// answer was lost may have been applied; how that is reported is up to the
// session that made it.
//
// # Contexts
//
// A context ends the waiting. It never takes back what was sent.
//
// # Concurrency
//
// A Client is safe for concurrent use. Close it after what uses it; what still
// does ends as after a lost connection.
package netclient
