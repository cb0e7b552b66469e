package writer

import (
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Options are what all users of one writer share. The zero value is not
// usable: start from DefaultOptions. [kgo]'s options of the same names say what
// each means.
type Options struct {
	// Compressor compresses batches; nil: none. Codecs is what it was made
	// from, so that two options can be told to be equal; nil for a
	// compressor of the user's.
	Compressor kgo.Compressor
	Codecs     []kgo.CompressionCodec

	BatchMaxBytes      func(topic string) int32 // whole batch, before compression
	MaxBufferedRecords int64
	MaxBufferedBytes   int64 // keys, values and headers; 0: no limit
	MaxInflight        int   // requests per broker, 1 to 5
	Linger             time.Duration
	ManualFlushing     bool
	RequestTimeout     time.Duration // that brokers are told
	RecordTimeout      time.Duration // 0: none
	RecordRetries      int64
	UnknownRetries     int64 // -1: without end
}

// MaxInflight is how many unanswered batches of one producer a partition's
// leader remembers: a sixth could not be told from a duplicate.
const MaxInflight = 5

// DefaultOptions are the options of a writer that nobody has configured.
func DefaultOptions() Options {
	codecs := []kgo.CompressionCodec{kgo.SnappyCompression(), kgo.NoCompression()}
	snappy, err := kgo.DefaultCompressor(slices.Clone(codecs)...)
	if err != nil {
		snappy, codecs = nil, nil
	}
	return Options{
		Compressor: snappy, Codecs: codecs,
		BatchMaxBytes:      defaultBatchMaxBytes,
		MaxBufferedRecords: 50_000,
		MaxInflight:        MaxInflight,
		RequestTimeout:     10 * time.Second,
		RecordRetries:      math.MaxInt64,
		UnknownRetries:     4,
	}
}

// defaultBatchMaxBytes is Kafka's default of max.message.bytes.
func defaultBatchMaxBytes(string) int32 { return 1_000_012 }

// differs names the first option in which o and other differ, "" if none.
// Functions and compressors of the user's are the same if they are the same
// value.
func (o *Options) differs(other *Options) string {
	for _, c := range []struct {
		name string
		same bool
	}{
		{"compression", o.sameCompressor(other)},
		{"ProducerBatchMaxBytes", o.sameBatchMaxBytes(other)},
		{"MaxBufferedRecords", o.MaxBufferedRecords == other.MaxBufferedRecords},
		{"MaxBufferedBytes", o.MaxBufferedBytes == other.MaxBufferedBytes},
		{"MaxProduceRequestsInflightPerBroker", o.MaxInflight == other.MaxInflight},
		{"ProducerLinger", o.Linger == other.Linger},
		{"ManualFlushing", o.ManualFlushing == other.ManualFlushing},
		{"ProduceRequestTimeout", o.RequestTimeout == other.RequestTimeout},
		{"RecordDeliveryTimeout", o.RecordTimeout == other.RecordTimeout},
		{"RecordRetries", o.RecordRetries == other.RecordRetries},
		{"UnknownTopicRetries", o.UnknownRetries == other.UnknownRetries},
	} {
		if !c.same {
			return c.name
		}
	}
	return ""
}

func (o *Options) sameCompressor(other *Options) bool {
	if o.Codecs != nil || other.Codecs != nil {
		return slices.Equal(o.Codecs, other.Codecs)
	}
	if o.Compressor == nil || other.Compressor == nil {
		return o.Compressor == nil && other.Compressor == nil
	}
	return reflect.TypeOf(o.Compressor).Comparable() && o.Compressor == other.Compressor
}

// sameBatchMaxBytes compares two functions by their code and by one value,
// which tells apart the closures that kgo.ProducerBatchMaxBytes makes.
func (o *Options) sameBatchMaxBytes(other *Options) bool {
	return reflect.ValueOf(o.BatchMaxBytes).Pointer() == reflect.ValueOf(other.BatchMaxBytes).Pointer() &&
		o.BatchMaxBytes("") == other.BatchMaxBytes("")
}

// ConflictError is returned for a second producer of a session whose options
// are not those of the first: they share one writer.
type ConflictError struct{ Option string }

// Error names the option.
func (e *ConflictError) Error() string {
	return e.Option + " differs from that of another producer of the session; the producers of a session share one writer and must agree"
}
