package kafkatest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

func TestSharedServesRecords(t *testing.T) {
	c := kafkatest.Shared(t, kafkatest.Latest())
	topic := kafkatest.Topic(t, c, 3)
	cl, err := kgo.NewClient(append(c.Opts(), kgo.DefaultProduceTopic(topic), kgo.ConsumeTopics(topic))...)
	require.NoError(t, err)
	defer cl.Close()
	require.NoError(t, cl.ProduceSync(t.Context(), kgo.StringRecord("one")).FirstErr())
	fs := cl.PollFetches(t.Context())
	require.NoError(t, fs.Err())
	require.Equal(t, "one", string(fs.Records()[0].Value))
}
