// Package writer sends Produce for a session: batches, their order and their
// retries. There is one [Writer] for each session, shared by its producers and
// by whatever else writes in its transactions, since sequence numbers belong to
// the session's identity: two writers that both number a partition from 0 lose
// data as duplicates.
//
// # From a record to its promise
//
// A [Source] is one user of the writer. Produce joins the open transaction (a
// [run]), waits for buffer space, chooses the partition and encodes the record
// straight into the partition's open batch, all under the writer's one mutex. A
// batch that is full, or that is due, is closed: it gets its sequence number,
// is compressed and summed by a worker, and waits for its broker's [sink] to put
// it into a request. Answers are worked off in the order of the requests; what
// they decide goes to one goroutine that runs the promises.
//
// # Order
//
// A partition's batches leave in the order of their sequence numbers; one that
// has to be sent again goes before all that is newer. Those that were in flight
// behind it are refused as out of order and follow it. Nothing is sent that is
// more than five batches after the oldest undecided one, so that a leader still
// knows that one when it comes again. A partition moves to another broker only
// while nothing of it is in flight.
//
// # Transactions
//
// A record belongs to the transaction that was open when Produce was entered.
// The run that stands for it is the session's participant: it refuses, drops
// and settles, and never meets the next one. A record that was taken and fails
// makes its transaction fail (Txn.Fail), so that a commit cannot miss it. After
// that nothing more of the run is sent.
//
// # Locks
//
// Writer.mu may be held when a method of a Txn that does not block is called
// (Advance, Wrote), never the other way round: a session calls its participants
// under no lock. Hooks for partitioned records, partitioners and
// ProducerBatchMaxBytesFn run under Writer.mu as they run under kgo's own locks:
// they must not call back. Promises and all other hooks run under no lock.
package writer
