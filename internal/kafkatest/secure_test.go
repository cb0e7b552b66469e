package kafkatest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

func TestSecuredLetsInWhoIsKnownAndAllowed(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafkatest.Secured())
	ctx := bounded(t)
	topic := kafkatest.Topic(t, c, 1)

	anonymous := client(t, []kgo.Opt{kgo.SeedBrokers(c.Seeds()...)})
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	require.Error(t, anonymous.Ping(short))
	stranger := client(t, c.UserOpts("stranger"))
	require.ErrorIs(t, stranger.Ping(short), kerr.SaslAuthenticationFailed)

	user := kafkatest.UniqueID(t)
	require.NoError(t, c.AddUser(ctx, user))
	writer := client(t, c.UserOpts(user))
	require.NoError(t, writer.Ping(ctx))
	write := func() error {
		cl := client(t, c.UserOpts(user), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0))
		return cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("mine")}).FirstErr()
	}
	require.ErrorIs(t, write(), kerr.TopicAuthorizationFailed)
	require.NoError(t, c.Allow(ctx, user, kmsg.ACLResourceTypeTopic, topic, kmsg.ACLOperationWrite))
	require.NoError(t, write())
	require.NoError(t, c.Revoke(ctx, user, kmsg.ACLResourceTypeTopic, topic, kmsg.ACLOperationWrite))
	require.ErrorIs(t, write(), kerr.TopicAuthorizationFailed)

	got, err := kafkatest.ReadCommitted(ctx, c, topic)
	require.NoError(t, err)
	require.Equal(t, []string{"mine"}, values(got))
	java, err := kafkatest.JavaRead(ctx, c, topic)
	require.NoError(t, err)
	require.Equal(t, []string{"mine"}, java)
	console, err := kafkatest.ConsoleConsume(ctx, c, topic)
	require.NoError(t, err)
	require.Equal(t, []string{"mine"}, console)
}

func TestUsersNeedASecuredCluster(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t, kafkatest.Latest())
	require.Error(t, c.AddUser(t.Context(), "somebody"))
	require.Error(t, c.Allow(t.Context(), "somebody", kmsg.ACLResourceTypeTopic, "*", kmsg.ACLOperationWrite))
	require.Error(t, c.Revoke(t.Context(), "somebody", kmsg.ACLResourceTypeTopic, "*", kmsg.ACLOperationWrite))
}
