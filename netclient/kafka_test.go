package netclient_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/internal/link"
	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/netclient"
)

// What real brokers show.
func TestCapabilitiesOfKafka(t *testing.T) {
	for name, tc := range map[string]struct {
		spec kafkatest.Spec
		v    int16
		can  []netclient.Capability
	}{
		"4.4":                    {kafkatest.Latest(), 2, []netclient.Capability{netclient.TransactionsV2, netclient.ShareGroups}},
		"4.4, old rules":         {kafkatest.OldRules(), 0, []netclient.Capability{netclient.ShareGroups}},
		"4.4, unstable versions": {kafkatest.Prepared(), 2, []netclient.Capability{netclient.TransactionsV2, netclient.ShareGroups, netclient.TwoPhaseCommit}},
		"3.9":                    {kafkatest.Kafka39(), 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			nc := newClient(t, kafkatest.Shared(t, tc.spec).Opts()...)
			v, err := nc.TransactionVersion(within(t))
			require.NoError(t, err)
			require.Equal(t, tc.v, v)
			var can []netclient.Capability
			for _, k := range []netclient.Capability{
				netclient.TransactionsV2, netclient.ShareGroups, netclient.TwoPhaseCommit,
				netclient.KeepPrepared, netclient.TxnHeartbeat, netclient.TxnShareAcks,
			} {
				ok, err := nc.Supports(within(t), k)
				require.NoError(t, err)
				if ok {
					can = append(can, k)
				}
			}
			require.Equal(t, tc.can, can)
		})
	}
}

// Many sessions that begin at once, with an answer lost on the way.
func TestManySessionsOnKafka(t *testing.T) {
	cluster := kafkatest.Shared(t, kafkatest.Latest())
	nw := faultnet.New()
	t.Cleanup(nw.Close)
	nc := newClient(t, append(cluster.Opts(), kgo.Dialer(nw.Dial))...)
	lost := nw.Inject(faultnet.Fault{Key: int16(kmsg.InitProducerID), Node: faultnet.Any, Action: faultnet.CutAfter, Skip: 50})
	id := kafkatest.UniqueID(t)
	var sessions sync.WaitGroup
	for i := range 200 {
		sessions.Go(func() {
			if r := initID(within(t), nc, fmt.Sprintf("%s-%d", id, i)); r.Err != nil {
				t.Error(r.Err)
			}
		})
	}
	sessions.Wait()
	require.Equal(t, 1, lost.Hits())
	require.Less(t, nw.Requests(int16(kmsg.FindCoordinator)), 20)
	require.LessOrEqual(t, nw.Conns(), 4+1+5, "the lanes' connections to one broker, and to it as a seed")
}

// A broker that refuses a password, or a right, is not asked for ever.
func TestRefusalsOfKafka(t *testing.T) {
	cluster := kafkatest.Shared(t, kafkatest.Secured())
	user := kafkatest.UniqueID(t)
	require.NoError(t, cluster.AddUser(within(t), user))

	id := kafkatest.UniqueID(t)
	r := initID(within(t), newClient(t, cluster.UserOpts(user)...), id)
	require.ErrorIs(t, r.Err, kerr.TransactionalIDAuthorizationFailed)
	require.Equal(t, transport.ClassDenied, r.Class)

	trusting, err := kgo.NewClient(cluster.Opts()...)
	require.NoError(t, err)
	defer trusting.Close()
	dialer := kgo.Dialer(trusting.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error)))
	nc := newClient(t, kgo.SeedBrokers(cluster.Seeds()...), dialer,
		kgo.SASL(scram.Auth{User: user, Pass: "wrong"}.AsSha256Mechanism()))
	r = initID(within(t), nc, id)
	require.ErrorIs(t, r.Err, kerr.SaslAuthenticationFailed)
	require.Equal(t, transport.ClassDenied, r.Class)
	require.False(t, r.Sent)

	// Without trust in its certificate.
	nc = newClient(t, kgo.SeedBrokers(cluster.Seeds()...), kgo.DialTLS())
	r = initID(within(t), nc, id)
	require.Equal(t, transport.ClassDenied, r.Class, "%v", r.Err)
	require.False(t, r.Sent)
	_, err = link.Transport(nc).Topic(within(t), "t")
	require.Error(t, err)
}
