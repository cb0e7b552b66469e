package producer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func (k *kit) create(configs map[string]*string) {
	k.t.Helper()
	_, err := kadm.NewClient(k.raw).CreateTopic(k.ctx(), parts, 1, configs, k.topic)
	require.NoError(k.t, err)
}

func (k *kit) remove() {
	k.t.Helper()
	_, err := kadm.NewClient(k.raw).DeleteTopic(k.ctx(), k.topic)
	require.NoError(k.t, err)
}

// A topic that is made while records wait for it gets them.
func TestTopicCreatedLate(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		k.topic += "-late"
		s := k.session()
		p := k.producer(s)
		require.NoError(t, s.Begin(k.ctx()))
		var out promised
		p.Produce(k.ctx(), k.rec(0, "a"), out.promise)
		time.AfterFunc(300*time.Millisecond, func() { k.create(nil) })
		require.NoError(t, s.Commit(k.ctx()))
		out.require(t, 1, nil)
		require.Equal(t, [][]string{{"a"}, nil, nil, nil}, k.committed())
	})
}

// The topic is deleted in mid-transaction: records fail within the bound, Abort
// works. It is made again: the next transaction writes to the new one.
func TestB32_TopicDeletedAndRecreated(t *testing.T) {
	for name, recreate := range map[string]bool{"deleted": false, "recreated at once": true} {
		t.Run(name, func(t *testing.T) {
			each(t, func(k *kit) {
				t := k.t
				s := k.session()
				p := k.producer(s)
				require.NoError(t, s.Begin(k.ctx()))
				require.NoError(t, p.ProduceSync(k.ctx(), k.rec(0, "a"), k.rec(1, "a")).FirstErr())
				k.remove()
				if recreate {
					k.create(nil)
				}
				var out promised
				p.Produce(k.ctx(), k.rec(0, "b"), out.promise)
				p.Produce(k.ctx(), k.rec(1, "b"), out.promise)
				begun := time.Now()
				err := s.Commit(k.ctx())
				require.Error(t, err)
				require.Less(t, time.Since(begun), 15*time.Second)
				require.Len(t, out.errs, 2)
				require.True(t, txnsession.IsAbortable(err), "%v", err)
				require.NoError(t, s.Abort(k.ctx()))
				if !recreate {
					k.create(nil)
				}
				require.NoError(t, s.Begin(k.ctx()))
				require.NoError(t, p.ProduceSync(k.ctx(), k.rec(0, "c"), k.rec(1, "c")).FirstErr())
				require.NoError(t, s.Commit(k.ctx()))
				require.Equal(t, [][]string{{"c"}, {"c"}, nil, nil}, k.committed())
			})
		})
	}
}

// The broker's limit for the topic is below the producer's: batches are split,
// and a record that is too large by itself fails.
func TestBrokerLimit(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		k.topic += "-limit"
		k.create(map[string]*string{"max.message.bytes": kadm.StringPtr("2000")})
		s := k.session()
		p := k.producer(s, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(50*time.Millisecond))
		require.NoError(t, s.Begin(k.ctx()))
		var out promised
		want := numbered(strings.Repeat("x", 50), 500)
		for _, v := range want {
			p.Produce(k.ctx(), k.rec(0, v), out.promise)
		}
		require.NoError(t, s.Commit(k.ctx()))
		out.require(t, 500, nil)
		require.Equal(t, [][]string{want, nil, nil, nil}, k.committed())

		require.NoError(t, s.Begin(k.ctx()))
		err := p.ProduceSync(k.ctx(), k.rec(0, strings.Repeat("y", 4000))).FirstErr()
		var e *producer.TooLargeError
		require.ErrorAs(t, err, &e)
		require.ErrorIs(t, err, kerr.MessageTooLarge)
		require.True(t, txnsession.IsAbortable(err), "%v", err)
		require.NoError(t, s.Abort(k.ctx()))
	})
}

// Where the topic keeps the time of the append that is the record's.
func TestLogAppendTime(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		k.topic += "-time"
		k.create(map[string]*string{"message.timestamp.type": kadm.StringPtr("LogAppendTime")})
		s := k.session()
		p := k.producer(s)
		require.NoError(t, s.Begin(k.ctx()))
		rc := k.rec(0, "a")
		rc.Timestamp = time.UnixMilli(1_000_000)
		require.NoError(t, p.ProduceSync(k.ctx(), rc).FirstErr())
		require.NoError(t, s.Commit(k.ctx()))
		if rc.Attrs.TimestampType() != 1 {
			t.Log("this cluster does not keep the time of the append")
			require.NotNil(t, k.fake)
			return
		}
		require.WithinDuration(t, time.Now(), rc.Timestamp, time.Minute)
	})
}

// Records come back as they were: headers, tombstones, empty apart from nil.
func TestRecordsComeBack(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		s := k.session()
		p := k.producer(s)
		require.NoError(t, s.Begin(k.ctx()))
		want := []*kgo.Record{
			{Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: nil}, {Key: "", Value: []byte{}}}},
			{Key: []byte("tombstone")}, {Value: []byte{}}, {}, {Key: []byte{}},
			{Value: []byte("old"), Timestamp: time.UnixMilli(1_600_000_000_000)},
		}
		for _, r := range want {
			c := *r
			c.Topic = k.topic
			require.NoError(t, p.ProduceSync(k.ctx(), &c).FirstErr())
		}
		require.NoError(t, s.Commit(k.ctx()))
		cl, err := kgo.NewClient(kgo.SeedBrokers(k.seeds...), kgo.DisableClientMetrics(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{k.topic: {0: kgo.NewOffset().AtStart()}}))
		require.NoError(t, err)
		defer cl.Close()
		var got []*kgo.Record
		for ctx := k.ctx(); len(got) < len(want); {
			fs := cl.PollFetches(ctx)
			require.NoError(t, fs.Err())
			got = append(got, fs.Records()...)
		}
		for i := range want {
			require.Equal(t, want[i].Key, got[i].Key)
			require.Equal(t, want[i].Value, got[i].Value)
			require.Len(t, got[i].Headers, len(want[i].Headers))
			for j, h := range want[i].Headers {
				require.Equal(t, h.Key, got[i].Headers[j].Key)
				require.Equal(t, h.Value, got[i].Headers[j].Value)
			}
			if want[i].Timestamp.IsZero() {
				require.WithinDuration(t, time.Now(), got[i].Timestamp, time.Minute)
			} else {
				require.Equal(t, want[i].Timestamp, got[i].Timestamp)
			}
		}
	})
}
