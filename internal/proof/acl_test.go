package proof_test

import (
	"crypto/tls"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/txnsession"
)

// The rights of a read-process-write loop, measured on Kafka 4.4.0:
//
//	WRITE on the transactional id   InitProducerId, EndTxn, Produce, TxnOffsetCommit
//	WRITE on the topics written     Produce
//	READ  on the group              TxnOffsetCommit, and the consumer itself
//	READ  on the topics read        TxnOffsetCommit, and the consumer itself
//
// WRITE and READ each bring DESCRIBE with them, so FindCoordinator,
// DescribeTransactions and Metadata need nothing more. A committer needs the
// first alone.

// securedClient returns a client of a user of a secured cluster whose frames the
// network can read: it speaks TLS in the client's place.
func (k *kit) securedClient(user string, opts ...kgo.Opt) *netclient.Client {
	k.t.Helper()
	like, err := kgo.NewClient(append(k.real.UserOpts(user), kgo.DisableClientMetrics())...)
	require.NoError(k.t, err)
	defer like.Close()
	cfg, ok := like.OptValue(kgo.DialTLSConfig).(*tls.Config)
	require.True(k.t, ok)
	mechanisms, ok := like.OptValue(kgo.SASL).([]sasl.Mechanism)
	require.True(k.t, ok)
	k.net = newNet(k.t, faultnet.WithTLS(cfg))
	return k.client(append(opts, kgo.SASL(mechanisms...))...)
}

// right is one right on one resource.
type right struct {
	resource kmsg.ACLResourceType
	name     string
	op       kmsg.ACLOperation
}

func (r right) describe() right {
	r.op = kmsg.ACLOperationDescribe
	return r
}

// loop is a user of a secured cluster who reads the topic input in a group and
// writes to the kit's topic.
type loop struct {
	*kit
	user, input             string
	txn, write, group, read right
}

func newLoop(t *testing.T) *loop {
	t.Helper()
	k := onReal(t, kafkatest.Secured(), 1)
	l := &loop{kit: k, user: kafkatest.UniqueID(t), input: kafkatest.Topic(t, k.real, 1)}
	l.txn = right{kmsg.ACLResourceTypeTransactionalId, kafkatest.UniqueID(t), kmsg.ACLOperationWrite}
	l.write = right{kmsg.ACLResourceTypeTopic, l.topic, kmsg.ACLOperationWrite}
	l.group = right{kmsg.ACLResourceTypeGroup, kafkatest.UniqueID(t), kmsg.ACLOperationRead}
	l.read = right{kmsg.ACLResourceTypeTopic, l.input, kmsg.ACLOperationRead}
	require.NoError(t, k.real.AddUser(k.ctx(), l.user))
	return l
}

func (l *loop) allow(rights ...right) {
	l.t.Helper()
	for _, r := range rights {
		require.NoError(l.t, l.real.Allow(l.ctx(), l.user, r.resource, r.name, r.op))
	}
}

func (l *loop) revoke(rights ...right) {
	l.t.Helper()
	for _, r := range rights {
		require.NoError(l.t, l.real.Revoke(l.ctx(), l.user, r.resource, r.name, r.op))
	}
}

// consumer returns a member of the group, with the user's credentials.
func (l *loop) consumer() *kgo.Client {
	l.t.Helper()
	cl, err := kgo.NewClient(append(l.real.UserOpts(l.user), kgo.SeedBrokers(l.seeds...), kgo.ConsumerGroup(l.group.name),
		kgo.ConsumeTopics(l.input), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DisableClientMetrics())...)
	require.NoError(l.t, err)
	return cl
}

// feed writes to the input, as the super user.
func (l *loop) feed(values ...string) {
	l.t.Helper()
	cl, err := kgo.NewClient(append(l.real.Opts(), kgo.DisableClientMetrics())...)
	require.NoError(l.t, err)
	defer cl.Close()
	for _, v := range values {
		require.NoError(l.t, cl.ProduceSync(l.ctx(), &kgo.Record{Topic: l.input, Value: []byte(v)}).FirstErr())
	}
}

// offsets are those of the transaction that has read so many records.
func (l *loop) offsets(read int64) map[string]map[int32]kgo.EpochOffset {
	return map[string]map[int32]kgo.EpochOffset{l.input: {0: {Epoch: -1, Offset: read}}}
}

// With these four rights the loop runs: with a client of options, and with one
// that takes its credentials from the kgo client that consumes.
func TestAUserWithTheRightsThatItNeeds(t *testing.T) {
	l := newLoop(t)
	l.allow(l.txn, l.write, l.group, l.read)
	cl := l.consumer()
	defer cl.CloseAllowingRebalance()
	fromClient, err := netclient.FromClient(cl)
	require.NoError(t, err)
	defer fromClient.Close()
	var want []string
	for _, nc := range []*netclient.Client{l.securedClient(l.user), fromClient} {
		s := l.session(nc, l.txn.name)
		require.NoError(t, s.Initialize(l.ctx()))
		p := l.producer(s)
		for _, v := range []string{"one", "two"} {
			l.feed(v)
			fs := cl.PollFetches(l.ctx())
			require.NoError(t, fs.Err())
			require.NoError(t, s.Begin(l.ctx()))
			read := map[string]map[int32]kgo.EpochOffset{l.input: {}}
			fs.EachRecord(func(r *kgo.Record) {
				p.Produce(l.ctx(), record(0, string(r.Value)), nil)
				read[l.input][r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
			})
			require.NoError(t, s.SendOffsets(l.ctx(), read, txnsession.GroupOf(cl)))
			require.NoError(t, s.Commit(l.ctx()))
			want = append(want, v)
		}
		require.NoError(t, s.Close(l.ctx()))
	}
	require.Equal(t, want, values(l.committed()))
	require.Equal(t, int64(len(want)), l.committedOffset())
}

// committedOffset is what the group has committed.
func (l *loop) committedOffset() int64 {
	l.t.Helper()
	return groupOffset(l.t, l.real, l.group.name, l.input)
}

// With one of them missing, wholly or but for DESCRIBE, the error is the
// broker's, nothing is committed, and once the right is granted the session goes
// on.
func TestAUserWithoutOneOfTheRights(t *testing.T) {
	l := newLoop(t)
	nc := l.securedClient(l.user)
	l.allow(l.txn, l.write, l.group, l.read)
	read := int64(0)
	for _, c := range []struct {
		name    string
		missing right
		err     *kerr.Error
		state   txnsession.State // after the refusal
	}{
		{"WRITE on the transactional id", l.txn, kerr.TransactionalIDAuthorizationFailed, txnsession.StateUninitialized},
		{"WRITE on the topic", l.write, kerr.TopicAuthorizationFailed, txnsession.StateAbortableError},
		{"READ on the group", l.group, kerr.GroupAuthorizationFailed, txnsession.StateAbortableError},
		{"READ on the input", l.read, kerr.TopicAuthorizationFailed, txnsession.StateAbortableError},
	} {
		for _, describe := range []bool{false, true} {
			l.revoke(c.missing)
			if describe {
				l.allow(c.missing.describe())
			}
			before := values(l.committed())
			s := l.session(nc, l.txn.name)
			p := l.producer(s)
			run := func(value string) error {
				if err := s.Begin(l.ctx()); err != nil {
					return err
				}
				if err := p.ProduceSync(l.ctx(), record(0, value)).FirstErr(); err != nil {
					return err
				}
				if err := s.SendOffsets(l.ctx(), l.offsets(read+1), txnsession.Unfenced(l.group.name)); err != nil {
					return err
				}
				return s.Commit(l.ctx())
			}
			err := s.Initialize(l.ctx())
			if err == nil {
				err = run("not allowed")
			}
			require.ErrorIs(t, err, c.err, c.name)
			var typed *txnsession.Error
			require.ErrorAs(t, err, &typed, c.name)
			require.Equal(t, c.state, s.State(), c.name)
			if c.state == txnsession.StateAbortableError {
				require.True(t, txnsession.IsAbortable(err), "%s: %v", c.name, err)
				err := s.Commit(l.ctx())
				require.True(t, txnsession.IsNotCommitted(err), "%s: %v", c.name, err)
				require.ErrorIs(t, err, c.err, c.name)
				require.NoError(t, s.Abort(l.ctx()), c.name)
			}
			require.Equal(t, before, values(l.committed()), c.name)
			require.Equal(t, read, l.committedOffset(), c.name)

			l.allow(c.missing)
			if c.state == txnsession.StateUninitialized {
				require.NoError(t, s.Initialize(l.ctx()), c.name)
			}
			require.NoError(t, run(c.name))
			read++
			require.Equal(t, append(before, c.name), values(l.committed()), c.name)
			require.Equal(t, read, l.committedOffset(), c.name)
			l.revoke(c.missing.describe())
			require.NoError(t, s.Close(l.ctx()))
		}
	}
}
