package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/examplekit"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

var errKilled = errors.New("the task was killed")

// sourceName is the key of the source's offsets: a task may read several.
const sourceName = "thermometer"

// position is a source offset, the value beside that key.
type position struct {
	Line int `json:"line"` // the next to read
}

// task copies one source.
type task struct {
	cluster       *examplekit.Cluster
	id            string // the transactional id, the same for each task that reads this source
	source        []string
	batch         int
	data, offsets string // topics
	dieAfter      int    // lines
	open          int    // lines of the transaction in which it died

	plug     examplekit.Plug
	session  *txnsession.Session
	producer *producer.Producer
}

// run copies what is left of the source. It returns the line at which it began
// and the one after the last that it has committed.
func (t *task) run(ctx context.Context) (from, to int, err error) {
	nc, err := netclient.New(append(t.cluster.Opts(), t.plug.Dialer())...)
	if err != nil {
		return 0, 0, err
	}
	defer nc.Close()
	if t.session, err = txnsession.New(nc, t.id); err != nil {
		return 0, 0, err
	}
	if t.producer, err = producer.New(t.session); err != nil {
		return 0, 0, err
	}
	// First take over, then read: only when the transaction of a predecessor
	// is aborted, and no zombie can commit another, do the offsets stand still.
	if err := t.session.Initialize(ctx); err != nil {
		return 0, 0, err
	}
	if from, err = t.position(ctx); err != nil {
		return 0, 0, err
	}
	for to = from; to < len(t.source); {
		next := min(to+t.batch, len(t.source))
		if err := t.copy(ctx, to, next); err != nil {
			return from, to, err
		}
		to = next
	}
	return from, to, errors.Join(t.producer.Close(ctx), t.session.Close(ctx))
}

// position reads where the last committed transaction ended.
func (t *task) position(ctx context.Context) (int, error) {
	records, err := t.cluster.ReadCommitted(ctx, t.offsets)
	if err != nil {
		return 0, err
	}
	var p position
	for _, r := range records { // the last one counts
		if string(r.Key) != sourceName {
			continue
		}
		if err := json.Unmarshal(r.Value, &p); err != nil {
			return 0, fmt.Errorf("a source offset: %w", err)
		}
	}
	return p.Line, nil
}

// copy copies lines and their offset in one transaction. A failure ends the
// task: whatever became of the transaction, the next one reads the position
// again.
func (t *task) copy(ctx context.Context, from, to int) error {
	if err := t.session.Begin(ctx); err != nil {
		return err
	}
	for _, line := range t.source[from:to] {
		t.producer.Produce(ctx, &kgo.Record{Topic: t.data, Value: []byte(line)}, nil)
	}
	value, err := json.Marshal(position{to})
	if err != nil {
		return err
	}
	t.producer.Produce(ctx, &kgo.Record{Topic: t.offsets, Key: []byte(sourceName), Value: value}, nil)
	if to > t.dieAfter {
		return t.die(ctx, to-from)
	}
	err = t.session.Commit(ctx)
	for txnsession.IsOutcomeUnknown(err) && ctx.Err() == nil {
		err = t.session.Commit(ctx)
	}
	return err
}

// die ends the task with everything written, and nothing committed.
func (t *task) die(ctx context.Context, lines int) error {
	if err := t.producer.Flush(ctx); err != nil {
		return err
	}
	t.plug.Pull()
	t.open = lines
	return errKilled
}
