package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/examplekit"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

var errKilled = errors.New("the worker was killed")

// endLimit bounds one transaction, so that a cluster that is gone is noticed.
const endLimit = 30 * time.Second

// worker is one member of the group and its session. In life it is a process of
// its own.
type worker struct {
	*app
	number int

	plug     examplekit.Plug
	nc       *netclient.Client
	session  *txnsession.Session
	producer *producer.Producer
	consumer *kgo.Client
}

// run works until all lines are committed, or ctx ends.
func (w *worker) run(ctx context.Context) error {
	if err := w.start(ctx); err != nil {
		return fmt.Errorf("worker %d: %w", w.number, err)
	}
	polling, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer stop()
		select {
		case <-w.progress.done:
		case <-polling.Done():
		}
	}()
	for {
		fetches := w.consumer.PollRecords(polling, w.batch)
		records := fetches.Records()
		if len(records) > 0 {
			// What was begun is ended, also while the program is being stopped.
			err := w.process(context.WithoutCancel(ctx), records)
			if errors.Is(err, errKilled) {
				return err
			}
			if err != nil {
				return errors.Join(fmt.Errorf("worker %d: %w", w.number, err), w.stop(ctx))
			}
		}
		// Partitions are only taken away between two transactions: without
		// this, and BlockRebalanceOnPoll, another worker could read the lines
		// of the transaction that is open here.
		w.consumer.AllowRebalance()
		if polling.Err() != nil {
			return errors.Join(ctx.Err(), w.stop(ctx))
		}
		for _, e := range fetches.Errors() {
			w.say("worker %d  polling %s: %v", w.number, e.Topic, e.Err)
		}
	}
}

// start takes the transactional id over and joins the group, in this order: the
// transaction that a predecessor left open is aborted before its lines are
// read again.
func (w *worker) start(ctx context.Context) (err error) {
	opts := append(w.cluster.Opts(), w.plug.Dialer())
	if w.nc, err = netclient.New(opts...); err != nil {
		return err
	}
	// The id is the same for each process that takes this worker's place.
	if w.session, err = txnsession.New(w.nc, fmt.Sprintf("%s-%d", w.name, w.number)); err != nil {
		return err
	}
	if w.producer, err = producer.New(w.session, kgo.DefaultProduceTopic(w.out)); err != nil {
		return err
	}
	if err = w.session.Initialize(ctx); err != nil {
		return err
	}
	w.consumer, err = kgo.NewClient(append(opts,
		kgo.ConsumerGroup(w.name),
		// A successor has the place of its predecessor in the group at once,
		// not after the session timeout of the dead.
		kgo.InstanceID(strconv.Itoa(w.number)),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.ConsumeTopics(w.in),
		kgo.FetchMaxWait(200*time.Millisecond), // a partition that is read to its end holds the others up
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), // offsets are part of the transactions
		// A rebalance waits for the end of the transaction. A cooperative one
		// would go on beside it, and the offsets could then be refused as those
		// of an earlier generation: right too, but the work is done twice.
		kgo.BlockRebalanceOnPoll(),
		kgo.Balancers(kgo.StickyBalancer()),
		// Not needed for lines that are written without a transaction, and
		// right in general.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)...)
	return err
}

// process makes one transaction of the records. It returns nil when they are
// committed, and when they were not and will be read again.
func (w *worker) process(ctx context.Context, records []*kgo.Record) error {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	if err := w.session.Begin(ctx); err != nil {
		return err
	}
	err := w.transact(ctx, records)
	switch {
	case err == nil:
		w.progress.commit(len(records))
		return nil
	case errors.Is(err, errKilled):
		return err
	case txnsession.IsFenced(err):
		// Another process has this worker's id: it is the one that works now.
		w.say("worker %d  another one has taken its place", w.number)
		return err
	}
	if err := w.abort(ctx); err != nil {
		return err
	}
	w.progress.abort()
	w.say("worker %d  aborted %d lines and reads them again: %v", w.number, len(records), err)
	// One poll is one transaction: what is committed ends where this poll began.
	w.consumer.SetOffsets(firstOffsets(records))
	return nil
}

func (w *worker) transact(ctx context.Context, records []*kgo.Record) error {
	fate := w.progress.fate()
	for _, r := range records {
		for word, n := range count(string(r.Value)) {
			// Commit would tell of a record that could not be written.
			w.producer.Produce(ctx, &kgo.Record{Key: []byte(word), Value: strconv.AppendInt(nil, int64(n), 10)}, nil)
		}
	}
	if fate == fails {
		return errors.New("the batch has failed, as -fail wants it")
	}
	if err := w.session.SendOffsets(ctx, nextOffsets(records), txnsession.GroupOf(w.consumer)); err != nil {
		return err
	}
	if fate == dies {
		return w.die(ctx, len(records))
	}
	err := w.session.Commit(ctx)
	for txnsession.IsOutcomeUnknown(err) && ctx.Err() == nil {
		// It may have been committed. Only the same call again can tell.
		err = w.session.Commit(ctx)
	}
	return err
}

func (w *worker) abort(ctx context.Context) error {
	err := w.session.Abort(ctx)
	for txnsession.IsOutcomeUnknown(err) && ctx.Err() == nil {
		err = w.session.Abort(ctx)
	}
	return err
}

// die ends the worker at the worst moment: everything is written, offsets too,
// and the commit is the next thing it would send.
func (w *worker) die(ctx context.Context, lines int) error {
	if err := w.producer.Flush(ctx); err != nil {
		return err
	}
	w.plug.Pull()
	w.say("worker %d  killed in mid-transaction: %d lines in, their counts and offsets written, no commit, no abort", w.number, lines)
	return errKilled
}

// stop ends the worker in order.
func (w *worker) stop(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // each call has a bound of its own
	return errors.Join(w.producer.Close(ctx), w.session.Close(ctx))
}

// bury frees what the worker held, with the plug pulled: one that was killed
// must send nothing, and one that has stopped needs to send nothing more. (A
// member with an instance id does not leave its group by closing, but kgo would
// wait for a rebalance that is under way.)
func (w *worker) bury() {
	w.plug.Pull()
	if w.consumer != nil {
		w.consumer.CloseAllowingRebalance()
	}
	if w.nc != nil {
		w.nc.Close()
	}
}

// nextOffsets are those after the records, as they are committed.
func nextOffsets(records []*kgo.Record) map[string]map[int32]kgo.EpochOffset {
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	for _, r := range records { // in order within a partition
		if offsets[r.Topic] == nil {
			offsets[r.Topic] = make(map[int32]kgo.EpochOffset)
		}
		offsets[r.Topic][r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
	}
	return offsets
}

// firstOffsets are those of the first record of each partition.
func firstOffsets(records []*kgo.Record) map[string]map[int32]kgo.EpochOffset {
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	for _, r := range records {
		if offsets[r.Topic] == nil {
			offsets[r.Topic] = make(map[int32]kgo.EpochOffset)
		}
		if _, ok := offsets[r.Topic][r.Partition]; !ok {
			offsets[r.Topic][r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset}
		}
	}
	return offsets
}
