package producer

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/writer"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/txnsession"
)

// Producer sends records in the transactions of a session. Make it with New or
// NewTransactional, and close it. All methods may be called by several
// goroutines at once.
type Producer struct {
	session *txnsession.Session
	src     *writer.Source
	own     bool // the session is the producer's
}

// New returns a producer for the transactions of s, which stays the caller's.
// It does no I/O, and may be called in any state of s.
//
// The options are kgo's. Those that cannot be honoured are refused with an
// [*OptionError]: TransactionalID and TransactionTimeout, which are the
// session's; RequiredAcks below all; the switches DisableIdempotentWrite and
// AllowIdempotentProduceCancellation; MaxProduceRequestsInflightPerBroker above
// 5, which is the default; ProducerOnDataLossDetected, RackAwarePartitioning and
// StreamingCompression. So is one that differs from that of another producer of
// s (see the package comment). StopProducerOnDataLossDetected is how a
// transaction always behaves.
func New(s *txnsession.Session, opts ...kgo.ProducerOpt) (*Producer, error) {
	const op = "new producer"
	if s == nil {
		return nil, refused(op, nil, errors.New("the session is nil"))
	}
	set, err := readOptions(opts)
	if err == nil && set.session != nil {
		err = &OptionError{"SessionOpts", "the session exists already; SessionOpts is for NewTransactional"}
	}
	if err != nil {
		return nil, refused(op, s, err)
	}
	return newProducer(op, s, set, false)
}

// NewTransactional returns a producer with a session of its own, made with
// transactionalID and the options of [SessionOpts]. Closing the producer closes
// the session. It does no I/O; Initialize does. The options are those of New.
func NewTransactional(nc *netclient.Client, transactionalID string, opts ...kgo.ProducerOpt) (*Producer, error) {
	const op = "new producer"
	set, err := readOptions(opts)
	if err != nil {
		return nil, refused(op, nil, err)
	}
	s, err := txnsession.New(nc, transactionalID, set.session...)
	if err != nil {
		return nil, err
	}
	return newProducer(op, s, set, true)
}

func newProducer(op string, s *txnsession.Session, set *settings, own bool) (*Producer, error) {
	w, err := writer.For(s, &set.writer)
	if conflict, ok := errors.AsType[*writer.ConflictError](err); ok {
		err = &OptionError{conflict.Option, "it differs from that of another producer of the session"}
	}
	if err != nil {
		return nil, refused(op, s, err)
	}
	return &Producer{session: s, src: w.Source(set.source), own: own}, nil
}

// Produce hands r over and returns once it is buffered, or refused. promise,
// which may be nil, is called once, from another goroutine: with a nil error
// once the brokers have r, with its Partition, Offset, ProducerID, ProducerEpoch
// and Attrs set, or with why they have not, as a *[txnsession.Error] or an error
// that wraps one. Until then r must not be changed.
//
// r belongs to the transaction that is open when Produce is entered; if there is
// none, or its end has begun, the error is [txnsession.ErrState]. The context
// that a PhaseWork participant's Flush is given passes that gate. If the buffer
// is full Produce waits until there is room, ctx ends, or the transaction is
// aborted (kgo.ErrAborting); with ManualFlushing it does not wait, and the error
// is kgo.ErrMaxBuffered. ctx also drops r if it ends before r's batch is written
// for the first time. It has no effect on what is in flight.
//
// An empty Topic is the DefaultProduceTopic and a zero Timestamp the present
// time. MaybeSent of an error tells whether a broker may have r all the same; it
// cannot be committed then.
func (p *Producer) Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	p.src.Produce(ctx, r, promise, true)
}

// TryProduce is Produce without the wait: if the buffer is full r is refused
// with kgo.ErrMaxBuffered, which leaves the transaction as it is.
func (p *Producer) TryProduce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	p.src.Produce(ctx, r, promise, false)
}

// ProduceSync produces records and waits until all are answered, whatever
// lingers or is to be flushed by hand. The results are in the order in which the
// answers came. If ctx ends before, the results have its error and the
// transaction has failed, since the caller does not know what became of the
// records; those that were sent have MaybeSent set.
func (p *Producer) ProduceSync(ctx context.Context, rs ...*kgo.Record) kgo.ProduceResults {
	return p.src.ProduceSync(ctx, rs...)
}

// Flush sends all that is buffered, of every producer of the session, and
// returns after the last promise has returned, or with the context's error. It
// has no word on whether the records were written: their promises have.
func (p *Producer) Flush(ctx context.Context) error {
	if err := p.src.Flush(ctx); err != nil {
		return refused("flush", p.session, err)
	}
	return nil
}

// BufferedProduceRecords returns how many records were given to this producer
// and have a promise that has not returned yet.
func (p *Producer) BufferedProduceRecords() int64 { return p.src.Records() }

// BufferedProduceBytes returns the bytes of keys, values and headers of the
// records that BufferedProduceRecords counts.
func (p *Producer) BufferedProduceBytes() int64 { return p.src.Bytes() }

// TransactionSession returns the session whose transactions the producer writes
// in.
func (p *Producer) TransactionSession() *txnsession.Session { return p.session }

// Close ends the producer: Produce is refused with [txnsession.ErrClosed] from
// then on. Records that are not sent yet fail with it, and the open transaction
// with them; what is in flight is awaited, and every promise has returned when
// Close has. A session of the producer's own is closed after that, which aborts
// an open transaction; one that New was given stays open.
//
// ctx bounds the wait; the error is its own, or that of the session's Close.
// Close is idempotent.
func (p *Producer) Close(ctx context.Context) error {
	err := p.src.Close(ctx)
	if err != nil {
		err = refused("close", p.session, err)
	}
	if p.own {
		err = errors.Join(err, p.session.Close(ctx))
	}
	return err
}
