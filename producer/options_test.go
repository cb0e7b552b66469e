package producer_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

// refusedOptions are kgo's producer options that New refuses by name.
var refusedOptions = map[string]kgo.ProducerOpt{
	"TransactionalID":                     kgo.TransactionalID("id"),
	"TransactionTimeout":                  kgo.TransactionTimeout(time.Minute),
	"RequiredAcks":                        kgo.RequiredAcks(kgo.LeaderAck()),
	"DisableIdempotentWrite":              kgo.DisableIdempotentWrite(),
	"AllowIdempotentProduceCancellation":  kgo.AllowIdempotentProduceCancellation(),
	"MaxProduceRequestsInflightPerBroker": kgo.MaxProduceRequestsInflightPerBroker(6),
	"ProducerOnDataLossDetected":          kgo.ProducerOnDataLossDetected(func(string, int32) {}),
	"RackAwarePartitioning":               kgo.RackAwarePartitioning(),
	"StreamingCompression":                kgo.StreamingCompression(),
	"SessionOpts":                         producer.SessionOpts(txnsession.TransactionTimeout(time.Minute)),
	"RecordPartitioner":                   kgo.RecordPartitioner(nil),
}

// honouredOptions have tests of their own, here or in the writer.
var honouredOptions = []string{
	"DefaultProduceTopic", "DefaultProduceTopicAlways", "ProducerBatchCompression", "WithCompressor",
	"ProducerBatchMaxBytes", "ProducerBatchMaxBytesFn", "MaxBufferedRecords", "MaxBufferedBytes", "RecordPartitioner",
	"ProduceRequestTimeout", "RecordRetries", "UnknownTopicRetries", "StopProducerOnDataLossDetected",
	"ProducerLinger", "ManualFlushing", "RecordDeliveryTimeout", "MaxProduceRequestsInflightPerBroker", "RequiredAcks",
}

func offline(t *testing.T) *txnsession.Session {
	t.Helper()
	nc, err := netclient.New(kgo.SeedBrokers("127.0.0.1:1"))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	s, err := txnsession.New(nc, "options")
	require.NoError(t, err)
	return s
}

func TestRefusedOptions(t *testing.T) {
	for name, opt := range refusedOptions {
		_, err := producer.New(offline(t), kgo.ProducerLinger(time.Second), opt)
		var e *producer.OptionError
		require.ErrorAs(t, err, &e, name)
		require.Equal(t, name, e.Option)
		require.ErrorContains(t, err, name)
		var se *txnsession.Error
		require.ErrorAs(t, err, &se)
	}
	for name, opt := range map[string]kgo.ProducerOpt{
		"nil": nil, "too small": kgo.ProducerBatchMaxBytes(1), "negative": kgo.MaxBufferedBytes(-1),
		"zero": kgo.MaxProduceRequestsInflightPerBroker(0), "too short": kgo.RecordDeliveryTimeout(time.Millisecond),
		"empty": kgo.TransactionalID(""), "always what": kgo.DefaultProduceTopicAlways(),
	} {
		_, err := producer.New(offline(t), opt)
		require.Error(t, err, name)
		_, err = producer.NewTransactional(offline(t).Client(), "id", opt)
		require.Error(t, err, name)
	}
	_, err := producer.New(nil)
	require.Error(t, err)
	_, err = producer.NewTransactional(offline(t).Client(), "")
	require.ErrorIs(t, err, txnsession.ErrEmptyID)
}

// No producer option of kgo is ignored silently: one that a later version adds
// must be honoured or refused before this passes.
func TestEveryProducerOptionIsKnown(t *testing.T) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/twmb/franz-go/pkg/kgo").Output()
	require.NoError(t, err)
	src, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config.go"))
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^func (\w+)\(.*\) ProducerOpt \{`).FindAllSubmatch(src, -1)
	require.Greater(t, len(found), 20)
	for _, m := range found {
		name := string(m[1])
		_, refused := refusedOptions[name]
		require.True(t, refused || slices.Contains(honouredOptions, name), "kgo.%s is neither honoured nor refused", name)
	}
}

// Producers of one session must agree, whatever way the same value is given.
func TestProducersMustAgree(t *testing.T) {
	same := []kgo.ProducerOpt{
		kgo.ProducerBatchCompression(kgo.ZstdCompression(), kgo.NoCompression()), kgo.ProducerBatchMaxBytes(1 << 16),
		kgo.MaxBufferedRecords(10), kgo.RecordRetries(3),
	}
	s := offline(t)
	_, err := producer.New(s, same...)
	require.NoError(t, err)
	_, err = producer.New(s, append([]kgo.ProducerOpt{kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner())}, same...)...)
	require.NoError(t, err, "topic and partitioner are a producer's own")
	_, err = producer.New(s, append(same, kgo.ProducerLinger(time.Millisecond))...)
	var e *producer.OptionError
	require.ErrorAs(t, err, &e)
	require.Equal(t, "ProducerLinger", e.Option)
	_, err = producer.New(s, append(same, kgo.ProducerBatchMaxBytes(1<<17))...)
	require.ErrorAs(t, err, &e)
	require.Equal(t, "ProducerBatchMaxBytes", e.Option)
}

// SessionOpts does nothing where it is not wanted.
func TestSessionOptsInKgo(t *testing.T) {
	cl, err := kgo.NewClient(kgo.ProducerLinger(time.Second), producer.SessionOpts(txnsession.TwoPhaseCommit()), kgo.DisableClientMetrics())
	require.NoError(t, err)
	defer cl.Close()
	require.Equal(t, time.Second, cl.OptValue(kgo.ProducerLinger))
}

// spyCompressor counts its calls.
type spyCompressor struct{ calls *int }

func (c spyCompressor) Compress(dst *bytes.Buffer, src []byte, _ ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	*c.calls++
	return src, kgo.CodecNone
}

// What the options say reaches the wire.
func TestOptionsAreHonoured(t *testing.T) {
	k := embedded.kit(t)
	calls := 0
	for name, tc := range map[string]struct {
		opts  []kgo.ProducerOpt
		check func(r *kgo.Record, req *kmsg.ProduceRequest)
	}{
		"ProduceRequestTimeout": {
			[]kgo.ProducerOpt{kgo.ProduceRequestTimeout(7 * time.Second)},
			func(_ *kgo.Record, req *kmsg.ProduceRequest) { require.EqualValues(t, 7000, req.TimeoutMillis) },
		},
		"compression defaults to snappy": {nil, func(r *kgo.Record, _ *kmsg.ProduceRequest) {
			require.EqualValues(t, kgo.CodecSnappy, r.Attrs.CompressionType())
		}},
		"ProducerBatchCompression": {
			[]kgo.ProducerOpt{kgo.ProducerBatchCompression(kgo.ZstdCompression())},
			func(r *kgo.Record, _ *kmsg.ProduceRequest) {
				require.EqualValues(t, kgo.CodecZstd, r.Attrs.CompressionType())
			},
		},
		"WithCompressor": {
			[]kgo.ProducerOpt{kgo.WithCompressor(spyCompressor{&calls})},
			func(r *kgo.Record, _ *kmsg.ProduceRequest) {
				require.Equal(t, 1, calls)
				require.Zero(t, r.Attrs.CompressionType())
			},
		},
		"WithCompressor of nil": {
			[]kgo.ProducerOpt{kgo.WithCompressor(nil)},
			func(r *kgo.Record, _ *kmsg.ProduceRequest) {
				require.EqualValues(t, kgo.CodecSnappy, r.Attrs.CompressionType(), "as in kgo")
			},
		},
		"DefaultProduceTopicAlways": {
			[]kgo.ProducerOpt{kgo.DefaultProduceTopic("t"), kgo.DefaultProduceTopicAlways()},
			func(r *kgo.Record, _ *kmsg.ProduceRequest) { require.Equal(t, "t", r.Topic) },
		},
		"StopProducerOnDataLossDetected": {[]kgo.ProducerOpt{kgo.StopProducerOnDataLossDetected()}, func(*kgo.Record, *kmsg.ProduceRequest) {}},
		"acks of all":                    {[]kgo.ProducerOpt{kgo.RequiredAcks(kgo.AllISRAcks())}, func(_ *kgo.Record, req *kmsg.ProduceRequest) { require.EqualValues(t, -1, req.Acks) }},
	} {
		t.Run(name, func(t *testing.T) {
			var seen *kmsg.ProduceRequest
			inj := k.net.Inject(faultnet.Fault{Key: int16(kmsg.Produce), Node: faultnet.Any, Action: faultnet.Rewrite, Edit: func(req kmsg.Request, _ kmsg.Response) {
				seen = req.(*kmsg.ProduceRequest)
			}})
			defer inj.Remove()
			s := k.session()
			p := k.producer(s, tc.opts...)
			require.NoError(t, s.Begin(k.ctx()))
			r := k.rec(0, strings.Repeat("compress me ", 100))
			require.NoError(t, p.ProduceSync(k.ctx(), r).FirstErr())
			require.NoError(t, s.Commit(k.ctx()))
			require.NoError(t, inj.Err())
			require.NotNil(t, seen)
			tc.check(r, seen)
		})
	}
}

func TestBatchLimitByTopic(t *testing.T) {
	k := embedded.kit(t)
	s := k.session()
	p := k.producer(s, kgo.ProducerBatchMaxBytesFn(func(topic string) int32 {
		if topic == "t" {
			return 600
		}
		return 1 << 20
	}))
	require.NoError(t, s.Begin(k.ctx()))
	err := p.ProduceSync(k.ctx(), k.rec(0, strings.Repeat("x", 1000))).FirstErr()
	var e *producer.TooLargeError
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, 600, e.Limit)
	require.Equal(t, "t", e.Topic)
	require.ErrorIs(t, err, kerr.MessageTooLarge)
	require.Zero(t, k.requests(kmsg.Produce))
	require.NoError(t, s.Abort(k.ctx()))
}
