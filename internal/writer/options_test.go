package writer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/writer"
)

func TestProducersOfASessionMustAgree(t *testing.T) {
	mine, err := kgo.DefaultCompressor(kgo.GzipCompression())
	require.NoError(t, err)
	for option, change := range map[string]func(o *writer.Options){
		"":                                    func(*writer.Options) {},
		"compression":                         func(o *writer.Options) { o.Codecs = nil; o.Compressor = mine },
		"ProducerBatchMaxBytes":               func(o *writer.Options) { o.BatchMaxBytes = func(string) int32 { return 1000 } },
		"MaxBufferedRecords":                  func(o *writer.Options) { o.MaxBufferedRecords++ },
		"MaxBufferedBytes":                    func(o *writer.Options) { o.MaxBufferedBytes++ },
		"MaxProduceRequestsInflightPerBroker": func(o *writer.Options) { o.MaxInflight-- },
		"ProducerLinger":                      func(o *writer.Options) { o.Linger++ },
		"ManualFlushing":                      func(o *writer.Options) { o.ManualFlushing = true },
		"ProduceRequestTimeout":               func(o *writer.Options) { o.RequestTimeout++ },
		"RecordDeliveryTimeout":               func(o *writer.Options) { o.RecordTimeout++ },
		"RecordRetries":                       func(o *writer.Options) { o.RecordRetries-- },
		"UnknownTopicRetries":                 func(o *writer.Options) { o.UnknownRetries++ },
	} {
		c := newFakeCluster()
		w := writer.NewWith(newFakeSession(), c, newFakeLane(c), writer.DefaultOptions())
		o := writer.DefaultOptions()
		change(&o)
		err := w.Configure(&o)
		if option == "" {
			require.NoError(t, err)
			continue
		}
		var conflict *writer.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, option, conflict.Option)
		require.ErrorContains(t, err, option)
	}
}

func TestCompressorsOfTheUserMustBeTheSame(t *testing.T) {
	mine, err := kgo.DefaultCompressor(kgo.GzipCompression())
	require.NoError(t, err)
	c := newFakeCluster()
	o := writer.DefaultOptions()
	o.Codecs, o.Compressor = nil, mine
	w := writer.NewWith(newFakeSession(), c, newFakeLane(c), o)
	require.NoError(t, w.Configure(&o))
	require.NoError(t, w.Configure(nil), "who asks for nothing takes what there is")
	o.Compressor = nil
	require.Error(t, w.Configure(&o))
	o.Compressor = brokenCompressor{}
	require.Error(t, w.Configure(&o))
}
