package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/examplekit"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

var (
	errKilled  = errors.New("the task was killed")
	errProcess = errors.New("processing has failed")
)

// faults are what goes wrong in the example, each once.
type faults struct {
	failAt, dieAt   int64 // offsets of the input
	failures, kills int
}

// task owns one partition of the input and its part of the store.
type task struct {
	cluster          *examplekit.Cluster
	app              string // the group, and the beginning of the transactional id
	input, changelog string
	end              int64 // of the input
	every            int   // records in a transaction
	faults           *faults
	say              func(format string, args ...any)

	plug     examplekit.Plug
	session  *txnsession.Session
	producer *producer.Producer
	consumer *kgo.Client

	store    map[string]int
	position int64 // the next record of the input
	since    int   // records since the last commit
}

// run works until the input is counted and committed.
func (t *task) run(ctx context.Context) error {
	nc, err := netclient.New(append(t.cluster.Opts(), t.plug.Dialer())...)
	if err != nil {
		return err
	}
	defer nc.Close()
	defer t.closeConsumer()
	// The id names the task: whoever runs it next fences and aborts this one.
	if t.session, err = txnsession.New(nc, t.app+"-0_0"); err != nil {
		return err
	}
	if t.producer, err = producer.New(t.session, kgo.DefaultProduceTopic(t.changelog)); err != nil {
		return err
	}
	if err := t.session.Initialize(ctx); err != nil {
		return err
	}
	if err := t.restore(ctx); err != nil {
		return err
	}
	for t.position < t.end {
		err := t.iterate(ctx)
		if errors.Is(err, errKilled) {
			return err
		}
		if err != nil {
			if err := t.revive(ctx, err); err != nil {
				return err
			}
		}
	}
	return errors.Join(t.producer.Close(ctx), t.session.Close(ctx))
}

// iterate takes some records, and commits if it is time.
func (t *task) iterate(ctx context.Context) error {
	fetches := t.consumer.PollRecords(ctx, t.every-t.since)
	if err := fetches.Err(); err != nil {
		return err
	}
	for _, r := range fetches.Records() {
		if err := t.maybeBegin(ctx); err != nil {
			return err
		}
		if err := t.process(ctx, r); err != nil {
			return err
		}
	}
	if t.since >= t.every || t.position >= t.end {
		return t.commit(ctx)
	}
	return nil
}

// maybeBegin begins a transaction unless one is open. The session knows.
func (t *task) maybeBegin(ctx context.Context) error {
	if t.session.State() == txnsession.StateInTransaction {
		return nil
	}
	return t.session.Begin(ctx)
}

// process counts one word, in the store and in its changelog.
func (t *task) process(ctx context.Context, r *kgo.Record) error {
	word := string(r.Value)
	t.store[word]++
	t.producer.Produce(ctx, &kgo.Record{Key: r.Value, Value: strconv.AppendInt(nil, int64(t.store[word]), 10)}, nil)
	t.position = r.Offset + 1
	t.since++
	switch f := t.faults; {
	case r.Offset == f.failAt && f.failures == 0:
		// The store has been changed: it must not be used any more.
		f.failures++
		return errProcess
	case r.Offset == f.dieAt && f.kills == 0:
		f.kills++
		if err := t.producer.Flush(ctx); err != nil {
			return err
		}
		t.plug.Pull()
		t.say("killed at offset %d with %d records in the open transaction", r.Offset, t.since)
		return errKilled
	}
	return nil
}

// commit commits if there is something to commit. Again the session knows.
func (t *task) commit(ctx context.Context) error {
	if t.session.State() != txnsession.StateInTransaction {
		return nil
	}
	offsets := map[string]map[int32]kgo.EpochOffset{t.input: {0: {Epoch: -1, Offset: t.position}}}
	// Unfenced, since the task is no member of the group: its transactional id
	// does the fencing.
	if err := t.session.SendOffsets(ctx, offsets, txnsession.Unfenced(t.app)); err != nil {
		return err
	}
	err := t.session.Commit(ctx)
	for txnsession.IsOutcomeUnknown(err) && ctx.Err() == nil {
		err = t.session.Commit(ctx)
	}
	if err == nil {
		t.since = 0
	}
	return err
}

// revive gets the task going again after a failure, without a new session.
func (t *task) revive(ctx context.Context, cause error) error {
	switch t.session.State() {
	case txnsession.StateReady:
	case txnsession.StateInTransaction, txnsession.StateAbortableError:
		if err := t.session.Abort(ctx); err != nil {
			return errors.Join(cause, err)
		}
	default: // fenced, or the outcome is not known: only a new task may go on
		return cause
	}
	at := t.position
	if err := t.restore(ctx); err != nil {
		return errors.Join(cause, err)
	}
	t.say("%v at offset %d: aborted, restored, going on from offset %d", cause, at, t.position)
	return nil
}

// restore makes the store and the position what the last commit left.
func (t *task) restore(ctx context.Context) error {
	changes, err := t.cluster.ReadCommitted(ctx, t.changelog)
	if err != nil {
		return err
	}
	if t.store, err = replay(changes); err != nil {
		return err
	}
	committed, err := t.cluster.Admin().FetchOffsets(kadm.RequireStable(ctx), t.app)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // nothing was committed yet
		return err
	}
	t.position, t.since = 0, 0
	if o, ok := committed.Lookup(t.input, 0); ok && o.At >= 0 {
		t.position = o.At
	}
	t.closeConsumer()
	t.consumer, err = kgo.NewClient(append(t.cluster.Opts(), t.plug.Dialer(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.input: {0: kgo.NewOffset().At(t.position)}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)...)
	return err
}

func (t *task) closeConsumer() {
	if t.consumer != nil {
		t.consumer.Close()
	}
}

// replay makes a store of its changelog.
func replay(changes []*kgo.Record) (map[string]int, error) {
	store := make(map[string]int)
	for _, r := range changes {
		n, err := strconv.Atoi(string(r.Value))
		if err != nil {
			return nil, fmt.Errorf("the count of %q: %w", r.Key, err)
		}
		store[string(r.Key)] = n
	}
	return store, nil
}
