package writer_test

import (
	"context"
	"errors"
	"sync/atomic"
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

// stalled is a rig whose broker answers only when told, and whose buffer holds
// n records.
func stalled(t *testing.T, n int64, set ...func(*rig, *writer.Options)) (*rig, chan struct{}) {
	set = append([]func(*rig, *writer.Options){func(_ *rig, o *writer.Options) { o.MaxBufferedRecords = n }}, set...)
	r := newRig(t, set...)
	hold := make(chan struct{})
	r.lane.handle = func(int32, int, *kmsg.ProduceRequest) *reply { return &reply{apply: true, wait: hold} }
	return r, hold
}

func TestFullBuffer(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(r *rig, tx *fakeTxn, hold chan struct{}, cancel func())
		want error
	}{
		"an answer makes room":   {func(_ *rig, _ *fakeTxn, hold chan struct{}, _ func()) { close(hold) }, nil},
		"its context ends":       {func(_ *rig, _ *fakeTxn, _ chan struct{}, cancel func()) { cancel() }, context.Canceled},
		"the transaction aborts": {func(r *rig, tx *fakeTxn, _ chan struct{}, _ func()) { go func() { _ = r.session.abort(bg, tx) }() }, kgo.ErrAborting},
		"the transaction fails": {func(r *rig, _ *fakeTxn, _ chan struct{}, _ func()) {
			big := rec(0, string(make([]byte, 2<<20)))
			r.src.Produce(bg, big, nil, false)
			r.w.Source(writer.SourceOptions{}).Produce(bg, &kgo.Record{}, nil, true) // no topic
		}, txnsession.ErrState},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, hold := stalled(t, 2)
				tx := r.session.begin()
				var p, q promised
				r.produce(&p, 0, "a", "b")
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				var returned atomic.Bool
				go func() {
					r.src.Produce(ctx, rec(0, "c"), q.promise, true)
					returned.Store(true)
				}()
				pass(time.Minute)
				require.False(t, returned.Load())
				require.EqualValues(t, 3, r.src.Records())
				require.EqualValues(t, 3, r.src.Bytes())
				tc.end(r, tx, hold, cancel)
				synctest.Wait()
				require.True(t, returned.Load())
				if name == "an answer makes room" {
					require.NoError(t, r.session.commit(bg, tx))
					q.require(t, 1, nil)
					require.Equal(t, []string{"a", "b", "c"}, r.lane.values("t", 0))
					return
				}
				if name == "the transaction fails" {
					require.Len(t, q.errs, 1)
					require.ErrorContains(t, q.errs[0], "no topic")
				} else {
					q.require(t, 1, tc.want)
				}
				if name == "its context ends" {
					require.Equal(t, txnsession.StateAbortableError, r.session.State(), "the record belonged to the transaction")
				}
				close(hold)
				synctest.Wait()
			})
		})
	}
}

func TestTryProduceDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hold := stalled(t, 1)
		tx := r.session.begin()
		var p, q promised
		r.produce(&p, 0, "a")
		r.src.Produce(bg, rec(0, "b"), q.promise, false)
		synctest.Wait()
		q.require(t, 1, kgo.ErrMaxBuffered)
		close(hold)
		require.NoError(t, r.session.commit(bg, tx), "to be refused is what it asked for")
		require.Equal(t, []string{"a"}, r.lane.values("t", 0))
	})
}

func TestMaxBufferedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hold := stalled(t, 100, func(_ *rig, o *writer.Options) { o.MaxBufferedBytes = 10 })
		tx := r.session.begin()
		var p, q promised
		r.produce(&p, 0, "0123456")
		r.src.Produce(bg, rec(0, "0123"), q.promise, false)
		synctest.Wait()
		q.require(t, 1, kgo.ErrMaxBuffered)
		r.src.Produce(bg, rec(0, "012"), p.promise, false)
		close(hold)
		require.NoError(t, r.session.commit(bg, tx))
		p.require(t, 2, nil)

		tx = r.session.begin()
		r.src.Produce(bg, rec(0, "0123456789a"), q.promise, false)
		synctest.Wait()
		var tooLarge *writer.TooLargeError
		require.ErrorAs(t, q.errs[1], &tooLarge)
		require.EqualValues(t, 10, tooLarge.Limit)
		require.EqualValues(t, 11, tooLarge.Size)
		require.ErrorIs(t, q.errs[1], kerr.MessageTooLarge)
		require.Error(t, r.session.commit(bg, tx))
	})
}

// Those who wait are let in one after the other, as they came.
func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hold := stalled(t, 1)
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "0")
		for _, v := range []string{"1", "2", "3", "4"} {
			go r.produce(&p, 0, v)
			synctest.Wait()
		}
		close(hold)
		require.NoError(t, r.session.commit(bg, tx), "a commit waits for those that came before it")
		require.Equal(t, []string{"0", "1", "2", "3", "4"}, r.lane.values("t", 0))
	})
}

// Nobody overtakes those who wait, though there would be room for less.
func TestSmallRecordsDoNotOvertakeLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hold := stalled(t, 100, func(_ *rig, o *writer.Options) { o.MaxBufferedBytes = 10 })
		tx := r.session.begin()
		var p, large promised
		r.produce(&p, 0, "0123456")
		ctx, cancel := context.WithCancel(bg)
		go r.src.Produce(ctx, rec(0, "large"), large.promise, true)
		synctest.Wait()
		var small atomic.Bool
		go func() {
			r.produce(&p, 0, "s")
			small.Store(true)
		}()
		synctest.Wait()
		require.False(t, small.Load())
		cancel()
		synctest.Wait()
		large.require(t, 1, context.Canceled)
		require.Equal(t, txnsession.StateAbortableError, r.session.State())
		require.True(t, small.Load(), "refused, since the transaction has failed")
		close(hold)
		require.NoError(t, r.session.abort(bg, tx))
	})
}

// Produce inside a promise never waits for itself, however full the buffer is.
func TestProduceInsideAPromise(t *testing.T) {
	for name, limit := range map[string]int64{"one record fits": 1, "three fit": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(_ *rig, o *writer.Options) { o.MaxBufferedRecords = limit })
				tx := r.session.begin()
				const n = 50
				var p promised
				for range n {
					r.src.Produce(bg, rec(0, "outer"), func(rc *kgo.Record, err error) {
						p.promise(rc, err)
						r.src.Produce(bg, rec(1, "inner"), p.promise, true)
						r.src.Produce(bg, rec(2, "inner"), p.promise, true)
					}, true)
				}
				require.NoError(t, r.src.Flush(bg))
				p.require(t, 3*n, nil)
				require.NoError(t, r.session.commit(bg, tx))
			})
		})
	}
}

// Slow promises hold Produce up: what is answered may not pile up without end.
func TestSlowPromisesHoldProduceUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ *rig, o *writer.Options) { o.MaxBufferedRecords = 10 })
		tx := r.session.begin()
		var produced, most, done atomic.Int64
		go func() {
			for range 200 {
				r.src.Produce(bg, rec(0, "v"), func(*kgo.Record, error) {
					pass(10 * time.Millisecond)
					done.Add(1)
				}, true)
				most.Store(max(most.Load(), produced.Add(1)-done.Load()))
			}
		}()
		pass(10 * time.Second)
		require.EqualValues(t, 200, produced.Load())
		require.LessOrEqual(t, most.Load(), int64(30))
		require.NoError(t, r.session.commit(bg, tx))
		require.EqualValues(t, 200, done.Load())
	})
}

// A loop of failing calls does not outrun the promises.
func TestRefusalsAreHeldUpToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ *rig, o *writer.Options) { o.MaxBufferedRecords = 10 })
		var calls, done atomic.Int64
		go func() {
			for range 100 {
				r.src.Produce(bg, rec(0, "v"), func(_ *kgo.Record, err error) {
					if !errors.Is(err, txnsession.ErrState) {
						t.Error(err)
					}
					pass(10 * time.Millisecond)
					done.Add(1)
				}, true)
				calls.Add(1)
			}
		}()
		pass(200 * time.Millisecond)
		require.Less(t, calls.Load(), int64(60))
		pass(time.Minute)
		require.EqualValues(t, 100, calls.Load())
		require.EqualValues(t, 100, done.Load())
	})
}

// Inside a promise a refusal must not wait for that promise either.
func TestRefusalInsideAPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ *rig, o *writer.Options) { o.MaxBufferedRecords = 1 })
		inner := 0
		for range 5 {
			r.src.Produce(bg, rec(0, "v"), func(*kgo.Record, error) {
				for range 5 {
					r.src.Produce(bg, rec(0, "v"), func(*kgo.Record, error) { inner++ }, true)
				}
			}, true)
		}
		require.NoError(t, r.src.Flush(bg))
		require.Equal(t, 25, inner)
	})
}

// With manual flushing nothing leaves before Flush, and a full buffer refuses.
func TestManualFlushing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallBatches, func(_ *rig, o *writer.Options) { o.ManualFlushing, o.MaxBufferedRecords = true, 100 })
		tx := r.session.begin()
		var p, q promised
		r.produce(&p, 0, numbered("v", 100)...)
		pass(time.Minute)
		require.Empty(t, r.lane.sent())
		r.produce(&q, 0, "one more")
		synctest.Wait()
		q.require(t, 1, kgo.ErrMaxBuffered)
		require.NoError(t, r.src.Flush(bg))
		p.require(t, 100, nil)
		r.produce(&p, 0, "w")
		pass(time.Minute)
		p.require(t, 100, nil)
		require.NoError(t, r.session.commit(bg, tx))
		p.require(t, 101, nil)
	})
}
