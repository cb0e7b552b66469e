// Package producer is a thin producer: it sends records, and nothing else.
// Transactions are a [txnsession.Session]'s, whose participant the producer is.
//
//	p, err := producer.New(session, kgo.DefaultProduceTopic("orders"))
//	err = session.Begin(ctx)
//	p.Produce(ctx, &kgo.Record{Value: v}, nil)
//	err = session.Commit(ctx) // flushes the producer first
//
// Records, options, partitioners, compressors and hooks are kgo's. The only
// requests that leave a producer are Produce, Metadata and ApiVersions.
//
// # Records and transactions
//
// A record belongs to the transaction that was open when Produce was entered.
// Outside a transaction, and once its end has begun, Produce is refused with a
// state error ([txnsession.ErrState]); the record is never in a later one.
//
// A record that was taken and then fails makes its transaction fail: it can
// only be aborted from then on, so that a commit never misses a record whose
// promise nobody looked at. That includes a record that is too large and one
// whose context has ended. Only a record that TryProduce refuses with
// kgo.ErrMaxBuffered, or Produce with ManualFlushing, was not taken.
//
// # Promises
//
// Promises run one at a time, in the order of Produce within a partition, and
// have all returned when Commit, Abort or Flush does. Each runs exactly once.
// A promise may call Produce: it does not wait for itself, even if the buffer
// is full. Commit, Abort, Flush, Close and ProduceSync inside a promise wait for
// that promise, and end by their contexts.
//
// # Defaults
//
// Options that are not given have kgo's defaults but for one: ProducerLinger is
// 0. A batch that is not full is sent when nothing is in flight to its broker.
//
// # Several producers of one session
//
// They share the session's buffer, batches and connection, because sequence
// numbers belong to the session's identity. So they must agree on all options
// but DefaultProduceTopic, DefaultProduceTopicAlways and RecordPartitioner.
package producer
