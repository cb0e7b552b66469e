package writer_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/internal/writer"
	"github.com/ktxn/ktxn/txnsession"
)

// A topic that comes into being while records wait for it gets them, in order.
func TestTopicCreatedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cluster.remove("t")
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a", "b")
		time.AfterFunc(time.Second, func() { r.cluster.set("t", 1, 1, 2, 1) })
		pass(500 * time.Millisecond)
		r.produce(&p, 0, "c")
		require.NoError(t, r.session.commit(bg, tx))
		p.require(t, 3, nil)
		require.Equal(t, []string{"a", "b", "c"}, r.lane.values("t", 0))
	})
}

// One that does not fails its records after UnknownTopicRetries, and with them
// the transaction.
func TestTopicNeverCreated(t *testing.T) {
	for retries, most := range map[int64]time.Duration{0: 10 * time.Millisecond, 4: 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(_ *rig, o *writer.Options) { o.UnknownRetries = retries })
			r.cluster.remove("t")
			tx := r.session.begin()
			var p promised
			r.produce(&p, 0, "a", "b")
			begun := time.Now()
			require.ErrorIs(t, r.session.commit(bg, tx), kerr.UnknownTopicOrPartition)
			require.LessOrEqual(t, time.Since(begun), most)
			p.require(t, 2, kerr.UnknownTopicOrPartition)
			require.NoError(t, r.session.abort(bg, tx))
			require.Empty(t, r.lane.sent())
		})
	}
}

// A topic that may not be used, or cannot be, fails at once.
func TestTopicRefused(t *testing.T) {
	for _, why := range []error{kerr.TopicAuthorizationFailed, kerr.InvalidTopicException} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.cluster.put(&transport.Topic{Name: "t", Err: why})
			tx := r.session.begin()
			var p promised
			begun := time.Now()
			r.produce(&p, 0, "a")
			require.ErrorIs(t, r.session.commit(bg, tx), why)
			require.Zero(t, time.Since(begun))
			p.require(t, 1, why)
			require.NoError(t, r.session.abort(bg, tx))
		})
	}
}

// When the topic is known at last and one of those who waited is too large, those
// behind it are dropped, in order.
func TestWaitingRecordTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallBatches)
		r.cluster.remove("t")
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a", string(make([]byte, 600)), "b")
		r.cluster.set("t", 1, 1, 2, 1)
		require.ErrorIs(t, r.session.commit(bg, tx), kerr.MessageTooLarge)
		p.require(t, 3, kerr.MessageTooLarge)
		require.Equal(t, []string{"a", string(make([]byte, 600)), "b"}, p.values())
		require.NoError(t, r.session.abort(bg, tx))
		require.Zero(t, r.src.Bytes())
	})
}

// An abort ends the wait for an unknown topic.
func TestAbortWhileTheTopicIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cluster.remove("t")
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a")
		pass(100 * time.Millisecond)
		begun := time.Now()
		require.NoError(t, r.session.abort(bg, tx))
		require.Zero(t, time.Since(begun))
		p.require(t, 1, kgo.ErrAborting)
	})
}

// The topic is deleted in mid-transaction: its records fail within the bound,
// and the session can abort.
func TestB32_TopicDeleted(t *testing.T) {
	for _, unknown := range []int16{kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			tx := r.session.begin()
			var p, q promised
			r.produce(&p, 0, "a")
			synctest.Wait()
			p.require(t, 1, nil)
			r.cluster.remove("t")
			r.lane.handle = once(1000, code(unknown))
			r.produce(&q, 0, "b")
			r.produce(&q, 1, "c")
			begun := time.Now()
			require.Error(t, r.session.commit(bg, tx))
			require.Less(t, time.Since(begun), 5*time.Second)
			require.Len(t, q.errs, 2)
			require.Equal(t, txnsession.StateAbortableError, r.session.State())
			require.True(t, isUnknownTopic(q.errs[0]) || isUnknownTopic(q.errs[1]))
			require.NoError(t, r.session.abort(bg, tx))
		})
	}
}

func isUnknownTopic(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

// It is deleted and made again: what the transaction wrote is gone, so it must
// not commit; the next one writes to the new topic, from sequence 0.
func TestB32_TopicRecreated(t *testing.T) {
	for name, tc := range map[string]struct {
		version int16
		after   func(r *rig, q *promised) // what happens after the change
	}{
		"noticed by an answer":        {2, func(r *rig, q *promised) { r.lane.handle = once(2, code(100)); r.produce(q, 0, "b") }},
		"noticed only at the commit":  {2, func(*rig, *promised) {}},
		"old rules, by an answer":     {0, func(r *rig, q *promised) { r.lane.handle = once(2, code(3)); r.produce(q, 0, "b") }},
		"old rules, at the commit":    {0, func(*rig, *promised) {}},
		"with a record after the new": {2, func(r *rig, q *promised) { r.produce(q, 0, "b"); synctest.Wait() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.session.version = tc.version
				tx := r.session.begin()
				var p, q promised
				r.produce(&p, 0, "a")
				synctest.Wait()
				p.require(t, 1, nil)

				r.cluster.set("t", 2, 1, 2, 1)
				r.lane.recreate("t", topicID(1), topicID(2))
				tc.after(r, &q)
				require.Error(t, r.session.commit(bg, tx))
				require.Equal(t, txnsession.StateAbortableError, r.session.State())
				for _, err := range q.errs {
					require.True(t, isUnknownTopic(err), "%v", err)
				}
				require.NoError(t, r.session.abort(bg, tx))
				r.lane.handle = nil
				n := len(r.lane.sent())

				tx = r.session.begin()
				var again promised
				r.produce(&again, 0, "c")
				require.NoError(t, r.session.commit(bg, tx))
				again.require(t, 1, nil)
				require.Equal(t, []string{"c"}, r.lane.values("t", 0))
				require.Zero(t, r.lane.sent()[n].batches[0].seq)
			})
		})
	}
}

// What is cached of a topic may be old when a transaction begins: as long as
// nothing was written it goes to the new one.
func TestB32_TopicWasRecreatedBefore(t *testing.T) {
	for _, version := range []int16{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, smallBatches)
			r.session.version = version
			tx := r.session.begin()
			var p promised
			r.produce(&p, 0, "a")
			require.NoError(t, r.session.commit(bg, tx))

			r.lane.recreate("t", topicID(1), topicID(2))
			r.cluster.onRefresh = func(string) { r.cluster.set("t", 2, 1, 2, 1) }
			r.lane.handle = func(_ int32, n int, _ *kmsg.ProduceRequest) *reply {
				if n == 1 && version == 0 {
					return &reply{code: kerr.UnknownTopicOrPartition.Code}
				}
				return nil
			}
			tx = r.session.begin()
			var q promised
			want := numbered("v", 200)
			r.produce(&q, 0, want...)
			require.NoError(t, r.session.commit(bg, tx))
			q.require(t, 200, nil)
			require.Equal(t, want, r.lane.values("t", 0))
			require.Contains(t, tx.owned, seqKey("t", topicID(2), 0))
		})
	}
}

// The count of unknown-topic answers begins anew with each acceptance.
func TestUnknownTopicAnswersAreCountedInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ *rig, o *writer.Options) { o.UnknownRetries = 1 })
		r.lane.handle = func(_ int32, n int, _ *kmsg.ProduceRequest) *reply {
			if n%2 == 0 {
				return &reply{code: 3}
			}
			return nil
		}
		tx := r.session.begin()
		var p promised
		for range 5 {
			r.produce(&p, 0, "v")
			pass(time.Second)
		}
		require.NoError(t, r.session.commit(bg, tx))
		p.require(t, 5, nil)
	})
}

// New partitions of a topic are used once metadata shows them.
func TestTopicGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		src := r.w.Source(writer.SourceOptions{Partitioner: kgo.RoundRobinPartitioner()})
		tx := r.session.begin()
		var p promised
		for range 6 {
			src.Produce(bg, &kgo.Record{Topic: "t"}, p.promise, true)
		}
		require.NoError(t, r.session.commit(bg, tx))
		r.cluster.set("t", 1, 1, 2, 1, 2)
		tx = r.session.begin()
		for range 40 {
			src.Produce(bg, &kgo.Record{Topic: "t"}, p.promise, true)
			synctest.Wait()
		}
		require.NoError(t, r.session.commit(bg, tx))
		p.require(t, 46, nil)
		require.NotEmpty(t, r.lane.values("t", 3))
	})
}

// Several topics travel in one request, each named once.
func TestSeveralTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		hold := make(chan struct{})
		r.lane.handle = once(1, func(*kmsg.ProduceRequest) *reply { return &reply{apply: true, wait: hold} })
		for i, name := range []string{"a", "b", "c"} {
			r.cluster.set(name, byte(10+i), 1, 1)
			r.lane.names[topicID(byte(10+i))] = name
		}
		tx := r.session.begin()
		var p promised
		for i := range 12 {
			r.src.Produce(bg, &kgo.Record{Topic: []string{"a", "b", "c"}[i%3], Partition: int32(i % 2)}, p.promise, true)
		}
		synctest.Wait()
		close(hold)
		require.NoError(t, r.session.commit(bg, tx))
		p.require(t, 12, nil)
		most := 0
		for _, s := range r.lane.sent() {
			most = max(most, len(s.batches))
		}
		require.GreaterOrEqual(t, most, 5)
	})
}
