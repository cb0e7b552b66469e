// Package wire has the requests that kmsg does not have, and a wrapper that
// says whether a request has been written.
//
// # Where the layouts come from
//
// One file for each request, so that a change of number or layout is one edit:
//
//	InitProducerId (22) v6    KIP-939. Kafka 4.4.0 has it behind
//	                          unstable.api.versions.enable.
//	InitProducerId (22) v7    KIP-1309, a draft: ours until Kafka assigns it.
//	TxnHeartbeat (1095) v0    KIP-1309, a draft: key and layout are ours until
//	                          Kafka assigns them.
//
// All of them are flexible (KIP-482). Since the drafts may still change, a
// version or a key that a broker advertises proves nothing by itself: whoever
// sends these requests has to know by other means that the broker speaks this
// layout. Reading is strict: bytes that are left over are an error and not
// ignored, because they are the sign of another layout.
//
// # Versions that are too low
//
// A kgo client lowers the version of a request to what the broker, or the
// user's caps, allow. Where the lower version means something else (an
// InitProducerId v5 aborts the transaction that v6 was told to keep), it must
// not be applied, and a request cannot refuse to be sent. So it fails closed,
// twice. [Send] cancels the request's context when the version is set, which
// kgo does before it writes: nothing is sent. And without Send, AppendTo
// appends nothing: every request of kmsg that changes anything has at least
// one field, hence an empty body cannot be parsed, and a broker closes the
// connection without applying it. That costs whatever else is in flight on
// the connection its answer, which is why Send comes first.
//
// # What was written
//
// The only proof that a request was never sent is that its AppendTo never
// ran. [Track] wraps a request to keep that proof.
package wire
