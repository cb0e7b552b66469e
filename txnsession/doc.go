// Package txnsession is a Kafka transaction as an object of its own (KIP-1310).
//
// # Overview
//
// In Kafka's clients a transaction lives inside one producer. Here it is a
// [Session]: an identity (transactional id, producer id, epoch), a state
// machine and the requests to the transaction coordinator, and nothing else.
// Producers and consumers take part in a session's transaction; a committer
// ends transactions that another process prepared without any of them.
//
//	s, err := txnsession.New(nc, "orders-0")
//	err = s.Initialize(ctx)            // takes the id over, fences
//	for {
//		err = s.Begin(ctx)
//		// produce with producer.New(s), s.SendOffsets(...)
//		err = s.Commit(ctx)            // or s.Abort(ctx)
//	}
//
// # Contexts
//
// A context bounds the caller's wait and the retries within it; it never ends
// the transaction. A Commit whose context ends after its request left says so
// ([IsOutcomeUnknown]) and is resolved by calling Commit again.
//
// # Outcomes
//
// A nil from [Session.Commit] means committed. Of every other answer the
// predicates tell what is known: [IsNotCommitted] is certain and final,
// [NeverSent] means that no byte of the request left, [IsOutcomeUnknown] that
// only the coordinator knows. [IsAbortable], [IsFenced] and [IsFatal] tell what
// to do next; [Error].Allowed lists what may be called.
//
// # Concurrency
//
// All types are safe for concurrent use. One call at a time moves a session:
// a second Commit joins the first, an Abort beside it is refused.
package txnsession
