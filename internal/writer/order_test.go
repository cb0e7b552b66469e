package writer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/writer"
)

func smallBatches(_ *rig, o *writer.Options) {
	o.BatchMaxBytes = func(string) int32 { return 512 }
}

// With enough to send, five requests are in flight to a broker, and never more.
func TestRequestsArePipelined(t *testing.T) {
	for inflight := 1; inflight <= 5; inflight++ {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, smallBatches, func(_ *rig, o *writer.Options) { o.MaxInflight = inflight })
			r.lane.delay = time.Millisecond
			tx := r.session.begin()
			var p promised
			want := numbered("v", 2000)
			r.produce(&p, 0, want...)
			require.NoError(t, r.session.commit(context.Background(), tx))
			p.require(t, len(want), nil)
			require.Equal(t, want, r.lane.values("t", 0))
			require.Equal(t, want, p.values(), "promises run in order")
			require.Equal(t, inflight, r.lane.maxFly)
		})
	}
}

// A partial batch waits while something is in flight to its broker, and is sent
// when nothing is.
func TestPartialBatchesWaitForTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		hold := make(chan struct{})
		r.lane.handle = once(1, func(*kmsg.ProduceRequest) *reply { return &reply{apply: true, wait: hold} })
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a")
		synctest.Wait()
		r.produce(&p, 0, numbered("b", 10)...)
		r.produce(&p, 2, numbered("c", 10)...)
		synctest.Wait()
		require.Len(t, r.lane.sent(), 1)
		close(hold)
		synctest.Wait()
		sent := r.lane.sent()
		require.Len(t, sent, 2, "both partitions in one request")
		require.Len(t, sent[1].batches, 2)
		require.NoError(t, r.session.commit(context.Background(), tx))
		p.require(t, 21, nil)
	})
}

// Requests that carry partitions new to the transaction go one at a time: the
// coordinator registers them one after the other, and brokers refuse what comes
// meanwhile.
func TestNewPartitionsGoOneRequestAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		leaders := make([]int32, 24)
		for i := range leaders {
			leaders[i] = int32(1 + i%4)
		}
		r.cluster.set("t", 1, leaders...)
		var mu sync.Mutex
		known, newcomers := make(map[int32]bool), 0
		r.lane.handle = func(_ int32, _ int, req *kmsg.ProduceRequest) *reply {
			mu.Lock()
			fresh := false
			for _, rp := range req.Topics[0].Partitions {
				fresh = fresh || !known[rp.Partition]
			}
			if fresh {
				newcomers++
			}
			require.LessOrEqual(t, newcomers, 1)
			mu.Unlock()
			pass(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if fresh {
				newcomers--
			}
			for _, rp := range req.Topics[0].Partitions {
				known[rp.Partition] = true
			}
			return nil
		}
		for range 2 {
			tx := r.session.begin()
			clear(known)
			var p promised
			for i := range 480 {
				r.produce(&p, int32(i%len(leaders)), "v")
			}
			require.NoError(t, r.session.commit(context.Background(), tx))
			p.require(t, 480, nil)
		}
	})
}

// Under the old rules the session has registered them, and nothing waits.
func TestOldRulesPipelineNewPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.session.version = 0
		hold := make(chan struct{})
		r.lane.handle = func(int32, int, *kmsg.ProduceRequest) *reply { return &reply{apply: true, wait: hold} }
		tx := r.session.begin()
		var p promised
		r.produce(&p, 0, "a")
		r.produce(&p, 1, "b")
		synctest.Wait()
		require.Len(t, r.lane.sent(), 2)
		close(hold)
		require.NoError(t, r.session.commit(context.Background(), tx))
	})
}

// A batch that was overtaken is refused as out of order, and goes again after
// the one that belongs before it.
func TestOvertakenBatchesGoAgainInOrder(t *testing.T) {
	for name, appended := range map[string]bool{"lost on the way": false, "answer lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, smallBatches)
				r.lane.delay = time.Millisecond
				lost := false
				r.lane.handle = func(_ int32, n int, _ *kmsg.ProduceRequest) *reply {
					if n == 3 && !lost {
						lost = true
						return &reply{apply: appended, err: errors.New("connection reset")}
					}
					return nil
				}
				tx := r.session.begin()
				var p promised
				want := numbered("v", 1000)
				r.produce(&p, 0, want...)
				require.NoError(t, r.session.commit(context.Background(), tx))
				require.True(t, lost)
				require.Equal(t, want, r.lane.values("t", 0))
				require.Equal(t, want, p.values())
				require.Empty(t, tx.failures())
			})
		})
	}
}

// A refusal costs that batch and those in flight behind it one more sending each,
// and no more.
func TestRefusalCostsOneMoreSending(t *testing.T) {
	for name, moves := range map[string]bool{"at the same broker": false, "at another broker": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, smallBatches)
				r.lane.delay = time.Millisecond
				refused, answers := 0, 0
				var mu sync.Mutex
				r.lane.handle = func(_ int32, n int, _ *kmsg.ProduceRequest) *reply {
					mu.Lock()
					defer mu.Unlock()
					answers++
					if refused == 0 && n == 8 {
						refused = answers
						if moves {
							r.cluster.set("t", 1, 2, 2, 2)
							return &reply{code: kerr.NotLeaderForPartition.Code}
						}
						return &reply{code: kerr.ConcurrentTransactions.Code}
					}
					return nil
				}
				tx := r.session.begin()
				var p promised
				want := numbered("v", 1000)
				r.produce(&p, 0, want...)
				require.NoError(t, r.session.commit(context.Background(), tx))
				require.Equal(t, want, r.lane.values("t", 0))
				require.Positive(t, refused)
				require.Equal(t, 1+4, overtaken(r.lane.sent()), "batches that were sent twice")
			})
		})
	}
}

// overtaken counts the batches that were sent more than once.
func overtaken(requests []sent) (n int) {
	times := make(map[int32]int)
	for _, s := range requests {
		for _, b := range s.batches {
			if times[b.seq]++; times[b.seq] > 1 {
				n++
			}
		}
	}
	return n
}

// An acceptance that comes before that of an older batch waits for it: promises
// keep the order of Produce.
func TestPromisesWaitForOlderBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallBatches)
		r.lane.delay = time.Millisecond
		r.lane.handle = func(_ int32, n int, _ *kmsg.ProduceRequest) *reply {
			if n == 2 {
				return &reply{apply: true, code: kerr.RequestTimedOut.Code} // appended all the same
			}
			return nil
		}
		tx := r.session.begin()
		var p promised
		want := numbered("v", 500)
		r.produce(&p, 0, want...)
		require.NoError(t, r.session.commit(context.Background(), tx))
		require.Equal(t, want, r.lane.values("t", 0))
		require.Equal(t, want, p.values())
		for i, rc := range p.records {
			require.EqualValues(t, i, rc.Offset)
		}
	})
}

// Whatever happens to requests, each record of a committed transaction is
// written once and in order.
func TestRandomFaultsKeepOrderAndCount(t *testing.T) {
	codes := []int16{3, 5, 6, 7, 13, 14, 19, 20, 51, 56, 74, 100}
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := newRand(seed)
				r := newRig(t, smallBatches, func(_ *rig, o *writer.Options) {
					o.UnknownRetries = -1
					o.MaxBufferedRecords = 200 + int64(rng.IntN(3000))
				})
				r.session.version = int16(seed % 2 * 2) // both rules
				r.lane.delay = time.Millisecond
				var mu sync.Mutex
				r.lane.handle = func(int32, int, *kmsg.ProduceRequest) *reply {
					mu.Lock()
					defer mu.Unlock()
					switch rng.IntN(20) {
					case 0:
						return &reply{err: errors.New("reset")}
					case 1:
						return &reply{apply: true, err: errors.New("reset")}
					case 2:
						return &reply{err: errors.New("refused"), unsent: true}
					case 3:
						return &reply{code: codes[rng.IntN(len(codes))]}
					case 4:
						return &reply{apply: true, code: []int16{7, 13, 20}[rng.IntN(3)]}
					case 5:
						return &reply{apply: true, noResp: true}
					case 6: // leaders move
						leaders := []int32{1 + int32(rng.IntN(3)), 1 + int32(rng.IntN(3)), 1 + int32(rng.IntN(3))}
						r.cluster.set("t", 1, leaders...)
						return &reply{code: kerr.NotLeaderForPartition.Code}
					}
					return nil
				}
				for round := range 3 {
					tx := r.session.begin()
					var p promised
					want := make([][]string, 3)
					for i := range 900 {
						v := fmt.Sprintf("r%d-%d", round, i)
						r.produce(&p, int32(i%3), v)
						want[i%3] = append(want[i%3], v)
					}
					require.NoError(t, r.session.commit(context.Background(), tx))
					p.require(t, 900, nil)
					for i := range want {
						got := r.lane.values("t", int32(i))
						require.Equal(t, want[i], got[len(got)-len(want[i]):])
						require.Len(t, got, (round+1)*len(want[i]), "no record twice")
					}
				}
			})
		})
	}
}

// All partitions of a broker get their turn although a request cannot hold them
// all.
func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(r *rig, o *writer.Options) { r.cluster.maxWrite = 4 << 10; o.MaxInflight = 1 })
		leaders := make([]int32, 20)
		for i := range leaders {
			leaders[i] = 1
		}
		r.cluster.set("t", 1, leaders...)
		tx := r.session.begin()
		var p promised
		value := string(make([]byte, 1000))
		for i := range 200 {
			r.produce(&p, int32(i%20), value)
		}
		require.NoError(t, r.session.commit(context.Background(), tx))
		p.require(t, 200, nil)
		for _, s := range r.lane.sent() {
			require.LessOrEqual(t, len(s.batches), 3)
		}
	})
}
