package writer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/txnsession"
)

// An abort drops what is unsent and waits for what is in flight.
func TestAbortDropsTheUnsentAndAwaitsTheSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		hold := make(chan struct{})
		r.lane.handle = once(1, func(*kmsg.ProduceRequest) *reply { return &reply{apply: true, wait: hold} })
		tx := r.session.begin()
		var p, q promised
		r.produce(&p, 0, "sent")
		synctest.Wait()
		r.produce(&q, 0, "unsent")
		r.produce(&q, 1, "unsent")
		done := make(chan error)
		go func() { done <- r.session.abort(bg, tx) }()
		synctest.Wait()
		require.Zero(t, p.len(), "the answer is awaited")
		select {
		case err := <-done:
			t.Fatal("the abort did not wait", err)
		default:
		}
		close(hold)
		require.NoError(t, <-done)
		p.require(t, 1, nil)
		q.require(t, 2, kgo.ErrAborting)
		require.Len(t, r.lane.sent(), 1)
		require.Empty(t, tx.failures())
	})
}

// If an abort cannot wait any longer the session learns that a Produce may still
// arrive; once settled, the promises run and late answers touch nothing.
func TestAbortThatCannotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		hold := make(chan struct{})
		r.lane.handle = once(1, func(*kmsg.ProduceRequest) *reply { return &reply{apply: true, wait: hold} })
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		require.ErrorIs(t, r.session.abort(ctx, tx), context.DeadlineExceeded)
		require.Len(t, tx.failures(), 1)
		var e *txnsession.Error
		require.ErrorAs(t, tx.failures()[0], &e)
		require.True(t, e.MaybeSent)
		require.Zero(t, p.len())

		r.session.end(tx, txnsession.Aborted)
		synctest.Wait()
		p.require(t, 1, kgo.ErrAborting)
		require.ErrorAs(t, p.errs[0], &e)
		require.True(t, e.MaybeSent)

		tx = r.session.begin()
		var q promised
		r.produce(&q, 0, "b")
		synctest.Wait()
		close(hold)
		synctest.Wait()
		require.NoError(t, r.session.commit(bg, tx))
		q.require(t, 1, nil)
		require.Equal(t, 1, p.len(), "each promise once")
	})
}

// A request that has not been encoded when its transaction is given up says
// nothing when it is encoded at last.
func TestRequestOfAnEndedTransactionSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		slow := &slowLane{fakeLane: r.lane, open: make(chan struct{})}
		r.useLane(slow)
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a")
		synctest.Wait()
		require.NoError(t, r.session.abort(bg, tx), "it does not wait for the connection")
		p.require(t, 1, kgo.ErrAborting)
		close(slow.open)
		synctest.Wait()
		require.Len(t, r.lane.sent(), 1)
		require.Empty(t, r.lane.sent()[0].batches)
		require.Empty(t, r.lane.values("t", 0))
		require.Empty(t, tx.failures(), "nothing can arrive")
	})
}

// Nor does one that is encoded once more after its transaction was settled.
func TestRequestIsNotRepeatedAfterItsTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		twice := &twiceLane{fakeLane: r.lane, again: make(chan struct{})}
		r.useLane(twice)
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a")
		synctest.Wait()
		r.session.closeGate(tx)
		r.session.end(tx, txnsession.Aborted) // as a Close that cannot wait does
		close(twice.again)
		synctest.Wait()
		p.require(t, 1, kgo.ErrAborting)
		body := kmsg.NewPtrProduceRequest()
		body.Version = 13
		require.NoError(t, body.ReadFrom(twice.body))
		require.Empty(t, body.Topics)
	})
}

// A Flush that its context ends has changed nothing: the same commit goes on.
func TestFlushCutByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		hold := make(chan struct{})
		r.lane.handle = once(1, func(*kmsg.ProduceRequest) *reply { return &reply{apply: true, wait: hold} })
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a")
		r.produce(&p, 0, "b")
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		require.ErrorIs(t, r.session.commit(ctx, tx), context.DeadlineExceeded)
		require.Equal(t, txnsession.StateInTransaction, r.session.State())
		require.Empty(t, tx.failures())
		close(hold)
		require.NoError(t, r.session.commit(bg, tx))
		p.require(t, 2, nil)
	})
}

// A session that is fenced sends nothing more.
func TestFencedSessionSendsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		hold := make(chan struct{})
		r.lane.handle = once(1, func(*kmsg.ProduceRequest) *reply { return &reply{apply: true, wait: hold} })
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a")
		synctest.Wait()
		r.produce(&p, 0, "b")
		r.session.kill(kerr.ProducerFenced)
		close(hold)
		synctest.Wait()
		require.Len(t, r.lane.sent(), 1)
		require.Len(t, p.errs, 2)
		require.NoError(t, p.errs[0])
		require.ErrorIs(t, p.errs[1], kerr.ProducerFenced)
		r.session.end(tx, txnsession.Aborted)
	})
}

// Every promise runs exactly once, whatever ends the transaction, in the middle
// of anything.
func TestPromisesRunOnce(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rng, faults := newRand(seed), newRand(seed+1000)
			r := newRig(t, smallBatches)
			r.lane.delay = time.Millisecond
			var mu sync.Mutex
			r.lane.handle = func(int32, int, *kmsg.ProduceRequest) *reply {
				mu.Lock()
				defer mu.Unlock()
				switch faults.IntN(30) {
				case 0:
					return &reply{code: []int16{45, 47, 87, 29, 10}[faults.IntN(5)]}
				case 1:
					return &reply{apply: true, err: errors.New("reset")}
				case 2:
					return &reply{err: errors.New("reset")}
				}
				return nil
			}
			for range 8 {
				tx := r.session.begin()
				runs := make([]int, 600)
				var lock sync.Mutex
				go func() {
					for i := range runs {
						r.src.Produce(bg, rec(int32(i%3), "v"), func(*kgo.Record, error) {
							lock.Lock()
							defer lock.Unlock()
							runs[i]++
						}, true)
					}
				}()
				pass(time.Duration(rng.IntN(20)) * time.Millisecond)
				if rng.IntN(2) == 0 {
					if err := r.session.commit(bg, tx); err != nil {
						require.NoError(t, r.session.abort(bg, tx))
					}
				} else {
					require.NoError(t, r.session.abort(bg, tx))
				}
				synctest.Wait()
				lock.Lock()
				for i, n := range runs {
					require.Equal(t, 1, n, "record %d", i)
				}
				lock.Unlock()
			}
			pass(time.Second) // requests that were silenced
		})
	}
}
