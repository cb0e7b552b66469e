package torture

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

// callTime bounds a call that is given enough time.
const callTime = 30 * time.Second

// worker runs one transaction after the other under one id, and keeps the books.
type worker struct {
	r             *run
	number        int
	id, group     string
	nc, elsewhere *netclient.Client
	rng           *rand.Rand
	ledger        ledger

	s *txnsession.Session // nil: one is needed
	p *producer.Producer
}

func newWorker(r *run, number int, id string, nc, elsewhere *netclient.Client) *worker {
	return &worker{
		r: r, number: number, id: id, group: fmt.Sprint(r.group, number), nc: nc, elsewhere: elsewhere,
		rng: rand.New(rand.NewPCG(r.cfg.Seed, uint64(number)+1)),
	}
}

// run begins transactions until the time is up, resolves each, and closes what
// is left.
func (w *worker) run(ctx, until context.Context) error {
	deadline := time.Now().Add(w.r.cfg.Duration + grace)
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, fmt.Errorf("session %d has not come to an end %v after the others should have", w.number, grace))
	defer cancel()
	pace := time.NewTicker(w.r.cfg.Pace)
	defer pace.Stop()
	for until.Err() == nil {
		if err := w.transaction(ctx); err != nil {
			return err
		}
		<-pace.C
	}
	if err := w.ready(ctx); err != nil {
		return err
	}
	w.close(ctx, w.s, w.p)
	w.count()
	return nil
}

// ready makes the session ready, or another one if it is of no more use.
func (w *worker) ready(ctx context.Context) error {
	for ctx.Err() == nil {
		if w.s == nil {
			if err := w.renew(); err != nil {
				return err
			}
		}
		call := w.s.Initialize
		switch state := w.s.State(); state {
		case txnsession.StateReady:
			return nil
		case txnsession.StateUninitialized:
		case txnsession.StateAbortableError, txnsession.StateAborting:
			if w.rng.IntN(2) == 0 {
				call = w.s.Abort
			}
		case txnsession.StateFatalError:
			w.close(ctx, w.s, w.p)
			w.s = nil
			continue
		default:
			return fmt.Errorf("session %d is %s between two transactions", w.number, state)
		}
		bounded, done := w.budget(ctx)
		err := call(bounded)
		done()
		if err != nil {
			w.rest(ctx)
		}
	}
	return context.Cause(ctx)
}

func (w *worker) renew() (err error) {
	if w.s, err = txnsession.New(w.nc, w.id); err != nil {
		return err
	}
	w.r.count(func(p *Report) { p.Sessions++ })
	w.p, err = producer.New(w.s, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(w.r.topic))
	return err
}

// close gives a session up, with what it has open.
func (w *worker) close(ctx context.Context, s *txnsession.Session, p *producer.Producer) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	_ = p.Close(ctx) // what they could not do the coordinator does in time
	_ = s.Close(ctx)
}

// rest keeps a loop from spinning on a call that fails at once.
func (w *worker) rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Millisecond):
	}
}

// budget bounds a call: mostly by enough time, now and then by next to none.
func (w *worker) budget(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.rng.IntN(4) == 0 { // 64 µs to 66 ms, small ones as often as large ones
		return context.WithTimeout(ctx, time.Duration(64*math.Pow(2, 10*w.rng.Float64()))*time.Microsecond)
	}
	return context.WithTimeout(ctx, callTime)
}

// transaction runs one transaction to its end.
func (w *worker) transaction(ctx context.Context) error {
	if err := w.ready(ctx); err != nil {
		return err
	}
	bounded, done := w.budget(ctx)
	err := w.s.Begin(bounded)
	done()
	if err != nil {
		return nil //nolint:nilerr // the next turn sees to it
	}
	t := new(txn)
	w.ledger.txns = append(w.ledger.txns, t)
	w.produce(ctx, t)
	if w.rng.IntN(4) == 0 {
		w.sendOffsets(ctx, t)
	}

	begun := time.Now()
	switch n := w.rng.IntN(100); {
	case n < 70:
		w.commit(ctx, t)
	case n < 85:
		w.abort(ctx, t)
	case n < 95:
		w.prepare(ctx, t)
	default:
		return w.leave(ctx, t)
	}
	took := time.Since(begun)
	w.r.count(func(p *Report) { p.Slowest = max(p.Slowest, took) })
	return context.Cause(ctx)
}

func (w *worker) produce(ctx context.Context, t *txn) {
	number := len(w.ledger.txns) - 1
	for range 1 + w.rng.IntN(40) {
		part := int32(w.rng.IntN(partitions))
		r := &kgo.Record{Partition: part, Value: value(w.number, number, part, t.counts[part])}
		t.counts[part]++
		w.p.Produce(ctx, r, func(_ *kgo.Record, err error) {
			t.promised.Add(1)
			if err != nil {
				t.failed.Add(1)
			}
		})
	}
}

// sendOffsets carries the number of the transaction as the group's offset, and
// repeats it while it is cut short.
func (w *worker) sendOffsets(ctx context.Context, t *txn) {
	t.offsets = true
	offset := map[string]map[int32]kgo.EpochOffset{w.r.topic: {0: {Epoch: -1, Offset: int64(len(w.ledger.txns))}}}
	for ctx.Err() == nil {
		bounded, done := w.budget(ctx)
		err := w.s.SendOffsets(bounded, offset, txnsession.Unfenced(w.group))
		done()
		if err == nil || w.s.State() != txnsession.StateInTransaction {
			return // refused: Commit will be
		}
	}
}

// leave is what a crash does: nobody ends the transaction, and the next owner of
// the id aborts it.
func (w *worker) leave(ctx context.Context, t *txn) error {
	s, p := w.s, w.p
	w.s, w.p = nil, nil
	w.told(t, aborted)
	if err := w.ready(ctx); err != nil {
		return err
	}
	w.close(ctx, s, p)
	return nil
}

// count adds the books to the report.
func (w *worker) count() {
	w.r.count(func(p *Report) {
		for _, t := range w.ledger.txns {
			p.Transactions++
			p.Produced += int(t.records())
			p.Failed += int(t.failed.Load())
			if t.offsets {
				p.Offsets++
			}
			switch {
			case t.verdict == committed:
				p.Committed++
			case t.verdict == aborted && t.refused:
				p.Refused++
			case t.verdict == aborted:
				p.Aborted++
			default:
				p.Undecided++
			}
			if t.open && t.verdict != undecided {
				p.Resolved++
			}
		}
	})
}
