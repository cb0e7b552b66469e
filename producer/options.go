package producer

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/writer"
	"github.com/ktxn/ktxn/txnsession"
)

// SessionOpts gives options to the session that [NewTransactional] makes. [New]
// refuses it, and given to kgo.NewClient it does nothing.
func SessionOpts(opts ...txnsession.Opt) kgo.ProducerOpt {
	// kgo's own option makes this one a kgo.ProducerOpt; nil is its default.
	return sessionOpts{kgo.ProducerOnDataLossDetected(nil), opts}
}

type sessionOpts struct {
	kgo.ProducerOpt
	opts []txnsession.Opt
}

// settings are what the options say.
type settings struct {
	writer  writer.Options
	source  writer.SourceOptions
	session []txnsession.Opt
}

// Values that no option gives, to tell an option that was given from a default.
var (
	unsetPartitioner = writer.DefaultPartitioner()
	unsetCompressor  = noCompressor{}
)

const unsetTimeout = 40*time.Second + time.Nanosecond

type noCompressor struct{}

func (noCompressor) Compress(_ *bytes.Buffer, src []byte, _ ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	return src, kgo.CodecNone
}

// readOptions takes the options' values. kgo's options can only be applied to a
// kgo client: they are read through one that is made and closed again, which
// dials nobody.
func readOptions(opts []kgo.ProducerOpt) (*settings, error) {
	var set settings
	var given []kgo.Opt
	for _, o := range opts {
		switch o := o.(type) {
		case nil:
			return nil, errors.New("nil option")
		case sessionOpts:
			set.session = append(set.session, o.opts...)
		default:
			given = append(given, o)
		}
	}
	if err := set.read(given); err != nil {
		return nil, err
	}
	return &set, set.readIdempotency(given)
}

// probe makes the client that options are read through: with before, which they
// override, and after, which keeps kgo from refusing what is judged here.
func probe(before, given, after []kgo.Opt) (*kgo.Client, error) {
	// The largest that kgo allows; the netclient's own counts when sending.
	common := []kgo.Opt{kgo.DisableClientMetrics(), kgo.BrokerMaxWriteBytes(1 << 30)}
	return kgo.NewClient(slices.Concat(common, before, given, after)...)
}

// readIdempotency reads the options that kgo refuses for an idempotent producer,
// and judges them by name.
func (set *settings) readIdempotency(given []kgo.Opt) error {
	cl, err := probe(
		[]kgo.Opt{kgo.MaxProduceRequestsInflightPerBroker(writer.MaxInflight)}, given,
		[]kgo.Opt{kgo.DisableIdempotentWrite()},
	)
	if err != nil { // the rest has been accepted before
		return &OptionError{"MaxProduceRequestsInflightPerBroker", err.Error()}
	}
	defer cl.Close()
	if acks, ok := cl.OptValue(kgo.RequiredAcks).(kgo.Acks); !ok || acks != kgo.AllISRAcks() {
		return &OptionError{"RequiredAcks", "a transaction needs the acknowledgement of all replicas"}
	}
	n := value(cl, kgo.MaxProduceRequestsInflightPerBroker, 0)
	if n > writer.MaxInflight {
		return &OptionError{"MaxProduceRequestsInflightPerBroker", fmt.Sprintf("%d is more than %d, the number of batches in which a broker recognises a duplicate", n, writer.MaxInflight)}
	}
	set.writer.MaxInflight = n
	return nil
}

// read reads the other options, and refuses by name what cannot be honoured.
func (set *settings) read(given []kgo.Opt) error {
	cl, err := probe(
		[]kgo.Opt{
			kgo.ProducerLinger(0), kgo.RecordPartitioner(unsetPartitioner),
			kgo.WithCompressor(unsetCompressor), kgo.TransactionTimeout(unsetTimeout),
		}, given,
		[]kgo.Opt{kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxProduceRequestsInflightPerBroker(1)},
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := judge(cl); err != nil {
		return err
	}
	set.source = writer.SourceOptions{
		Partitioner: value[kgo.Partitioner](cl, kgo.RecordPartitioner, nil),
		Topic:       value(cl, kgo.DefaultProduceTopic, ""),
		TopicAlways: value(cl, kgo.DefaultProduceTopicAlways, false),
	}
	o := &set.writer
	o.BatchMaxBytes = value[func(string) int32](cl, kgo.ProducerBatchMaxBytesFn, nil)
	o.MaxBufferedRecords = value(cl, kgo.MaxBufferedRecords, int64(0))
	o.MaxBufferedBytes = value(cl, kgo.MaxBufferedBytes, int64(0))
	o.Linger = value(cl, kgo.ProducerLinger, time.Duration(0))
	o.ManualFlushing = value(cl, kgo.ManualFlushing, false)
	o.RequestTimeout = value(cl, kgo.ProduceRequestTimeout, time.Duration(0))
	o.RecordTimeout = value(cl, kgo.RecordDeliveryTimeout, time.Duration(0))
	o.RecordRetries = value(cl, kgo.RecordRetries, int64(0))
	o.UnknownRetries = value(cl, kgo.UnknownTopicRetries, int64(0))
	if set.source.Partitioner == nil {
		return &OptionError{"RecordPartitioner", "the partitioner is nil"}
	}
	return set.readCompression(cl)
}

// judge refuses what a producer of a session cannot honour.
func judge(cl *kgo.Client) error {
	for _, no := range []struct {
		name   string
		given  bool
		reason string
	}{
		{name: "TransactionalID", given: value(cl, kgo.TransactionalID, "") != "", reason: "the transactional id is the session's: give it to txnsession.New or NewTransactional"},
		{name: "TransactionTimeout", given: value(cl, kgo.TransactionTimeout, unsetTimeout) != unsetTimeout, reason: "the timeout is the session's: use txnsession.TransactionTimeout"},
		{name: "DisableIdempotentWrite", given: value(cl, kgo.DisableIdempotentWrite, false), reason: "a transaction needs idempotent writes"},
		{name: "AllowIdempotentProduceCancellation", given: value(cl, kgo.AllowIdempotentProduceCancellation, false), reason: "a transaction that gives up a record fails; abort it"},
		{name: "ProducerOnDataLossDetected", given: value[func(string, int32)](cl, kgo.ProducerOnDataLossDetected, nil) != nil, reason: "a transaction never goes on after data loss: the record's promise and the session tell of it"},
		{name: "RackAwarePartitioning", given: value(cl, kgo.RackAwarePartitioning, false), reason: "it needs kgo.Rack, a consumer option that producers do not take"},
		{name: "StreamingCompression", given: value(cl, kgo.StreamingCompression, false), reason: "batches are bounded before compression"},
	} {
		if no.given {
			return &OptionError{no.name, no.reason}
		}
	}
	return nil
}

func value[T any](cl *kgo.Client, option any, otherwise T) T {
	if v, ok := cl.OptValue(option).(T); ok {
		return v
	}
	return otherwise
}
