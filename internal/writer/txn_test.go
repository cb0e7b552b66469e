package writer_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/txnsession"
)

var bg = context.Background()

// The epoch moves with each end, and every partition starts at 0 again.
func TestB13_EachEpochStartsAtSequenceZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cluster.set("t", 1, 1, 2, 3, 1, 2, 3, 1, 2)
		for round := range 6 {
			tx := r.session.begin()
			var p promised
			for i := range 80 {
				r.produce(&p, int32(i%8), fmt.Sprint(i))
			}
			if round%2 == 0 {
				require.NoError(t, r.session.commit(bg, tx))
				p.require(t, 80, nil)
				continue
			}
			synctest.Wait() // some is written
			require.NoError(t, r.session.abort(bg, tx))
		}
		first := make(map[string]bool)
		for _, s := range r.lane.sent() {
			for _, b := range s.batches {
				key := fmt.Sprint(b.epoch, b.partition)
				if !first[key] {
					first[key] = true
					require.Zero(t, b.seq, "epoch %d partition %d", b.epoch, b.partition)
				}
			}
		}
		require.Len(t, first, 6*8)
	})
}

// A gap in the sequence numbers fails the transaction; nothing more is sent.
func TestB14_SequenceGapFailsTheTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, numbered("a", 100)...)
		synctest.Wait()
		p.require(t, 100, nil)
		n := len(r.lane.sent())
		r.lane.handle = func(int32, int, *kmsg.ProduceRequest) *reply { return &reply{code: 45} }
		var q promised
		r.produce(&q, 0, "b")
		synctest.Wait()
		q.require(t, 1, kerr.OutOfOrderSequenceNumber)
		require.Equal(t, txnsession.StateAbortableError, r.session.State())
		r.produce(&q, 0, "c")
		r.produce(&q, 1, "d")
		require.Error(t, r.session.commit(bg, tx))
		synctest.Wait()
		require.Len(t, r.lane.sent(), n+1, "nothing after the failure")
		require.Len(t, q.errs, 3)
		require.ErrorIs(t, q.errs[2], kerr.OutOfOrderSequenceNumber, "what comes later tells the cause")
		require.ErrorIs(t, q.errs[2], txnsession.ErrState)
		require.NoError(t, r.session.abort(bg, tx))
	})
}

// Transactions follow each other at once while others produce: no batch ever
// carries an old epoch (the lane checks), and no record joins the wrong one.
func TestB15_NoBatchOfAnOldEpoch(t *testing.T) {
	r := newRig(t)
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var accepted, refused atomic.Int64
	for g := range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				done := make(chan struct{})
				r.src.Produce(bg, rec(int32(g), fmt.Sprint(i)), func(_ *kgo.Record, err error) {
					defer close(done)
					if err != nil {
						refused.Add(1)
						return
					}
					accepted.Add(1)
				}, true)
				if i%8 == 0 {
					<-done
				}
			}
		})
	}
	for round := range rounds {
		tx := r.session.begin()
		var p promised
		r.produce(&p, int32(round%3), "x")
		require.NoError(t, r.session.commit(bg, tx))
		p.require(t, 1, nil)
		require.Equal(t, tx.epoch, p.records[0].ProducerEpoch)
	}
	close(stop)
	wg.Wait()
	require.Positive(t, accepted.Load())
	require.NoError(t, r.src.Flush(bg))
	total := 0
	for i := range int32(3) {
		total += len(r.lane.values("t", i))
	}
	require.EqualValues(t, accepted.Load()+int64(rounds), total)
}

// Below transaction.version 2 the epoch stays and sequence numbers go on, past
// the largest to 0; Produce is v11 at most.
func TestB31_OldRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallBatches)
		r.session.version = 0
		const start = math.MaxInt32 - 50
		r.session.seqs[seqKey("t", topicID(1), 0)] = start
		total := 0
		for range 3 {
			tx := r.session.begin()
			var p promised
			r.produce(&p, 0, numbered("v", 100)...)
			total += 100
			require.NoError(t, r.session.commit(bg, tx))
			p.require(t, 100, nil)
		}
		next := int64(start)
		for _, s := range r.lane.sent() {
			require.LessOrEqual(t, s.version, int16(11))
			for _, b := range s.batches {
				require.EqualValues(t, next%(math.MaxInt32+1), b.seq)
				next += int64(b.n)
			}
		}
		require.EqualValues(t, start+total, next)
	})
}

// The versions that the old rules allow, down to the first with record batches.
func TestOldProduceVersions(t *testing.T) {
	for _, version := range []int16{3, 5, 8, 9, 11} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.session.version = 0
			r.lane.version = version
			tx := r.session.begin()
			var p promised
			r.produce(&p, 0, "a", "b")
			r.produce(&p, 2, "c")
			require.NoError(t, r.session.commit(bg, tx))
			p.require(t, 3, nil)
			require.Equal(t, version, r.lane.sent()[0].version)
		})
	}
}

// To kgo a request is a Produce with a time limit of its own, and it is only
// written.
func TestRequestAsKgoSeesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		look := &lookingLane{fakeLane: r.lane}
		r.useLane(look)
		tx := r.session.begin()
		r.produce(&promised{}, 0, "a")
		require.NoError(t, r.session.commit(bg, tx))
		req := look.req
		require.Zero(t, req.Key())
		require.EqualValues(t, 13, req.GetVersion())
		require.True(t, req.IsFlexible())
		require.EqualValues(t, 10_000, req.(kmsg.TimeoutRequest).Timeout())
		require.EqualValues(t, 13, req.ResponseKind().GetVersion())
		require.IsType(t, &kmsg.ProduceResponse{}, req.ResponseKind())
		require.Error(t, req.ReadFrom(nil))
	})
}

// Produce is v13 with topic ids, v12 by name as soon as one topic has none.
func TestVersionsByTopicIDs(t *testing.T) {
	for name, tc := range map[string]struct {
		id   byte
		lane int16
		want int16
	}{
		"ids":                       {1, 13, 13},
		"no ids":                    {0, 13, 12},
		"a broker without v13":      {1, 12, 12},
		"a broker that is too old":  {1, 11, -1},
		"one that is newer than us": {1, 14, 13},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.lane.version = tc.lane
				r.cluster.set("t", tc.id, 1, 2, 1)
				tx := r.session.begin()
				var p promised
				r.produce(&p, 0, "a")
				err := r.session.commit(bg, tx)
				if tc.want < 0 {
					require.ErrorIs(t, err, kerr.UnsupportedVersion)
					require.Empty(t, r.lane.sent(), "not a byte")
					return
				}
				require.NoError(t, err)
				require.Equal(t, tc.want, r.lane.sent()[0].version)
			})
		})
	}
}

// Outside a transaction, and once its end has begun, Produce is a state error,
// and the record is in no later transaction either.
func TestProduceOutsideATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var p promised
		r.produce(&p, 0, "before")
		synctest.Wait()
		p.require(t, 1, txnsession.ErrState)

		tx := r.session.begin()
		var ok promised
		r.produce(&ok, 0, "in")
		parts := r.session.closeGate(tx)
		r.produce(&p, 0, "after the gate")
		require.NoError(t, parts[0].Flush(bg))
		r.session.end(tx, txnsession.Committed)
		r.produce(&p, 0, "between")
		tx = r.session.begin()
		require.NoError(t, r.session.commit(bg, tx))
		synctest.Wait()
		p.require(t, 3, txnsession.ErrState)
		require.Equal(t, []string{"in"}, r.lane.values("t", 0))
		require.Zero(t, r.src.Records())
	})
}

// The context of a PhaseWork Flush passes the gate, and what it produces is
// flushed with the rest.
func TestFlushContextPassesTheGate(t *testing.T) {
	for name, before := range map[string]bool{"the writer has joined before": true, "it has not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				tx := r.session.begin()
				var p promised
				want := []string{"last"}
				if before {
					r.produce(&p, 0, "first")
					want = []string{"first", "last"}
				}
				r.session.closeGate(tx)
				r.src.Produce(tx.passing(bg), rec(0, "last"), p.promise, true)
				require.NoError(t, r.session.commit(bg, tx))
				p.require(t, len(want), nil)
				require.Equal(t, want, r.lane.values("t", 0))
			})
		})
	}
}

// Own refuses a partition: its records and the transaction fail.
func TestOwnRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.session.own = func(_ string, p int32) error {
			if p == 1 {
				return txnsession.ErrPartitionOwned
			}
			return nil
		}
		tx := r.session.begin()
		var p promised
		r.produce(&p, 1, "a")
		require.ErrorIs(t, r.session.commit(bg, tx), txnsession.ErrPartitionOwned)
		p.require(t, 1, txnsession.ErrPartitionOwned)
		require.Empty(t, r.lane.sent())
		require.NoError(t, r.session.abort(bg, tx))
	})
}

// While the markers of the last transaction are being written batches fill up,
// and leave once the gate opens.
func TestBatchesFillWhileTheGateIsShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.session.gate = make(chan struct{})
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, numbered("v", 100)...)
		synctest.Wait()
		require.Empty(t, r.lane.sent())
		close(r.session.gate)
		require.NoError(t, r.session.commit(bg, tx))
		p.require(t, 100, nil)
		require.Len(t, r.lane.sent(), 1, "one batch of all")
	})
}
