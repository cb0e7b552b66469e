package writer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/writer"
	"github.com/ktxn/ktxn/txnsession"
)

// hookLog notes what hooks are told.
type hookLog struct {
	mu         sync.Mutex
	events     []string
	batches    []kgo.ProduceBatchMetrics
	interrupts func(*kgo.Record)
}

func (h *hookLog) notef(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, fmt.Sprintf(format, args...))
}

func (h *hookLog) OnProduceRecordBuffered(r *kgo.Record) {
	h.notef("buffered %s", r.Value)
	if h.interrupts != nil {
		h.interrupts(r)
	}
}

func (h *hookLog) OnProduceRecordPartitioned(r *kgo.Record, leader int32) {
	h.notef("partitioned %s %d@%d", r.Value, r.Partition, leader)
}

func (h *hookLog) OnProduceRecordUnbuffered(r *kgo.Record, err error) {
	h.notef("unbuffered %s %v", r.Value, err == nil)
}

func (h *hookLog) OnProduceBatchWritten(meta kgo.BrokerMetadata, topic string, p int32, m kgo.ProduceBatchMetrics) {
	h.notef("written %d %s/%d %d", meta.NodeID, topic, p, m.NumRecords)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batches = append(h.batches, m)
}

func TestHooksFireAsInKgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := &hookLog{}
		r := newRig(t, func(r *rig, _ *writer.Options) { r.cluster.hooks = []kgo.Hook{hooks, "not a hook of ours"} })
		hooks.interrupts = func(rc *kgo.Record) { rc.Value = append(rc.Value, '!') } // an interceptor
		tx := r.session.begin()
		var p promised
		r.src.Produce(bg, rec(1, "a"), func(rc *kgo.Record, err error) {
			hooks.notef("promise %s", rc.Value)
			p.promise(rc, err)
		}, true)
		require.NoError(t, r.session.commit(bg, tx))
		r.produce(&p, 0, "b")
		synctest.Wait()
		require.Equal(t, []string{
			"buffered a", "partitioned a! 1@2", "written 2 t/1 1", "unbuffered a! true", "promise a!",
			"buffered b", "unbuffered b! false",
		}, hooks.events)
		require.Equal(t, []string{"a!"}, r.lane.values("t", 1))
	})
}

func TestDefaultTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cluster.set("u", 2, 1)
		r.lane.names[topicID(2)] = "u"
		tx := r.session.begin()
		var p promised
		some := r.w.Source(writer.SourceOptions{Topic: "u"})
		some.Produce(bg, &kgo.Record{Value: []byte("a")}, p.promise, true)
		some.Produce(bg, &kgo.Record{Topic: "t", Value: []byte("b")}, p.promise, true)
		always := r.w.Source(writer.SourceOptions{Topic: "u", TopicAlways: true})
		always.Produce(bg, &kgo.Record{Topic: "t", Value: []byte("c")}, p.promise, true)
		require.NoError(t, r.session.commit(bg, tx))
		p.require(t, 3, nil)
		require.Equal(t, []string{"a", "c"}, r.lane.values("u", 0))
		require.Same(t, r.w, some.Writer())

		tx = r.session.begin()
		var q promised
		r.src.Produce(bg, &kgo.Record{Value: []byte("d")}, q.promise, true)
		synctest.Wait()
		require.ErrorContains(t, q.errs[0], "no topic")
		require.Error(t, r.session.commit(bg, tx))
	})
}

func TestLinger(t *testing.T) {
	lingering := func(_ *rig, o *writer.Options) { o.Linger = 50 * time.Millisecond }
	for name, tc := range map[string]struct {
		do     func(r *rig, p *promised)
		within time.Duration
		atEast time.Duration
	}{
		"it passes":     {func(*rig, *promised) {}, 60 * time.Millisecond, 50 * time.Millisecond},
		"a flush":       {func(r *rig, _ *promised) { go func() { _ = r.src.Flush(bg) }() }, time.Millisecond, 0},
		"a produceSync": {func(r *rig, _ *promised) { go r.src.ProduceSync(bg, rec(0, "s")) }, time.Millisecond, 0},
		"a full batch":  {func(r *rig, p *promised) { big := string(make([]byte, 999_900)); r.produce(p, 0, big, big) }, time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, lingering)
				tx := r.session.begin()
				var p promised
				r.produce(&p, 0, "a")
				begun := time.Now()
				tc.do(r, &p)
				for p.len() == 0 {
					pass(100 * time.Microsecond)
					synctest.Wait()
				}
				require.LessOrEqual(t, time.Since(begun), tc.within)
				require.GreaterOrEqual(t, time.Since(begun), tc.atEast)
				require.NoError(t, r.session.commit(bg, tx))
			})
		})
	}
	t.Run("each batch has its own", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, lingering)
			tx := r.session.begin()
			var p promised
			r.produce(&p, 0, "a")
			pass(30 * time.Millisecond)
			r.produce(&p, 2, "b")
			pass(25 * time.Millisecond)
			p.require(t, 1, nil)
			pass(30 * time.Millisecond)
			p.require(t, 2, nil)
			require.NoError(t, r.session.commit(bg, tx))
		})
	})
	t.Run("a full buffer ends it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, lingering, func(_ *rig, o *writer.Options) { o.MaxBufferedRecords = 2 })
			tx := r.session.begin()
			var p promised
			begun := time.Now()
			r.produce(&p, 0, "a", "b", "c")
			require.Zero(t, time.Since(begun))
			require.NoError(t, r.session.commit(bg, tx))
		})
	})
}

// Closing a source fails what it has not sent, and with it the transaction;
// what is in flight is awaited.
func TestClose(t *testing.T) {
	for name, tc := range map[string]struct {
		state func(r *rig, p, q *promised) // q: records that will fail
		fails bool
	}{
		"nothing of it": {func(*rig, *promised, *promised) {}, false},
		"all answered":  {func(r *rig, p, _ *promised) { r.produce(p, 0, "a"); synctest.Wait() }, false},
		"in flight":     {func(r *rig, p, _ *promised) { r.lane.delay = time.Second; r.produce(p, 0, "a"); synctest.Wait() }, false},
		"unsent":        {func(r *rig, _, q *promised) { r.session.gate = make(chan struct{}); r.produce(q, 0, "a") }, true},
		"for a topic":   {func(r *rig, _, q *promised) { r.cluster.remove("t"); r.produce(q, 0, "a") }, true},
		"waiting for space": {func(r *rig, p, q *promised) {
			r.lane.delay = time.Second
			r.produce(p, 0, "a")
			synctest.Wait()
			go r.produce(q, 0, "b")
			synctest.Wait()
		}, true},
		"being retried": {func(r *rig, _, q *promised) {
			r.lane.handle = once(1000, code(19))
			r.produce(q, 0, "a")
			synctest.Wait()
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(_ *rig, o *writer.Options) {
					if name == "waiting for space" {
						o.MaxBufferedRecords = 1
					}
				})
				other := r.w.Source(writer.SourceOptions{Partitioner: kgo.ManualPartitioner()})
				tx := r.session.begin()
				var p, q, late promised
				tc.state(r, &p, &q)
				require.NoError(t, r.src.Close(bg))
				require.NoError(t, r.src.Close(bg), "idempotent")
				for i := range p.errs {
					require.NoError(t, p.errs[i])
				}
				r.produce(&late, 0, "late")
				synctest.Wait()
				late.require(t, 1, txnsession.ErrClosed)
				if tc.fails {
					q.require(t, 1, txnsession.ErrClosed)
					require.ErrorIs(t, r.session.commit(bg, tx), txnsession.ErrClosed)
				} else {
					var o promised
					other.Produce(bg, rec(2, "o"), o.promise, true)
					require.NoError(t, r.session.commit(bg, tx), "the others go on")
					o.require(t, 1, nil)
				}
				if tc.fails {
					require.NoError(t, r.session.abort(bg, tx))
				}
			})
		})
	}
}

// Close is bounded by its context.
func TestCloseCutByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lane.delay = time.Minute
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		require.ErrorIs(t, r.src.Close(ctx), context.DeadlineExceeded)
		require.NoError(t, r.session.commit(bg, tx))
		p.require(t, 1, nil)
	})
}

// The lane was closed: records fail, nothing hangs.
func TestClientClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		tx := r.session.begin()
		r.lane.closed = true
		var p promised
		r.produce(&p, 0, "a")
		require.ErrorIs(t, r.session.commit(bg, tx), kgo.ErrClientClosed)
		p.require(t, 1, kgo.ErrClientClosed)
		require.NoError(t, r.session.abort(bg, tx))
	})
}

// A failure of one partition is told with its cause everywhere.
func TestFailureReachesOtherPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.session.gate = make(chan struct{})
		r.lane.handle = func(_ int32, n int, _ *kmsg.ProduceRequest) *reply {
			return &reply{codes: func(_ string, p int32) int16 {
				if p == 0 {
					return kerr.PolicyViolation.Code
				}
				return kerr.NotEnoughReplicas.Code
			}}
		}
		tx := r.session.begin()
		var p, q promised
		r.produce(&p, 0, "a")
		r.produce(&q, 2, "b")
		close(r.session.gate)
		synctest.Wait()
		p.require(t, 1, kerr.PolicyViolation)
		q.require(t, 1, kerr.PolicyViolation)
		require.ErrorIs(t, r.session.commit(bg, tx), kerr.PolicyViolation)
		require.Len(t, tx.failures(), 1)
		require.NoError(t, r.session.abort(bg, tx))
	})
}
