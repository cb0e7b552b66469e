package txnsession_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/link"
	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/txnsession"
)

// cellWriter is a participant that sends one record at a time through a produce
// lane of its session's netclient, and does with the answer what the retry
// table says.
type cellWriter struct {
	c    *cell
	s    *txnsession.Session
	lane *transport.ProduceLane

	mu     sync.Mutex
	txn    *txnsession.Txn
	value  string // to be sent; "" for none
	seq    int32
	flight chan produced // the try that is in flight; nil for none
	maybe  bool          // some try may have arrived and has no answer
}

type produced struct {
	resp  kmsg.Response
	maybe bool
	err   error
}

func (c *cell) writer(s *txnsession.Session) *cellWriter {
	return &cellWriter{c: c, s: s, lane: link.Transport(s.Client()).ProduceLane()}
}

// hold takes a record, to be sent by the next Flush.
func (w *cellWriter) hold(ctx context.Context, value string) error {
	txn, err := w.s.Enlist(w, txnsession.PhaseSend)
	if err != nil {
		return err
	}
	seq, err := txn.Own(ctx, w.c.topic, [16]byte{}, 0)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.txn, w.value, w.seq, w.maybe = txn, value, seq, false
	return nil
}

// write sends a record and waits for its answer.
func (w *cellWriter) write(ctx context.Context, value string) error {
	if err := w.hold(ctx, value); err != nil {
		return err
	}
	return w.Flush(ctx)
}

// Flush sends what is held until it is answered. A try outlives ctx.
func (w *cellWriter) Flush(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.value != "" {
		if w.flight == nil {
			w.send()
		}
		select {
		case r := <-w.flight:
			if err := w.answered(r); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if w.value == "" {
			return nil
		}
		w.c.retried(kmsg.Produce)
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (w *cellWriter) send() {
	id := w.s.TransactionalID()
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = &id, -1, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = w.c.topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = encodeBatch(w.txn, w.seq, []string{w.value})
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	flight := make(chan produced, 1)
	w.flight = flight
	w.lane.Produce(w.c.b.node, pinned{req, w.txn.TransactionVersion()}, nil, func(resp kmsg.Response, maybe bool, err error) {
		flight <- produced{resp, maybe, err}
	})
}

// answered judges a try. A nil error with the value still there is a retry.
func (w *cellWriter) answered(r produced) error {
	w.flight = nil
	if r.err != nil {
		w.maybe = w.maybe || r.maybe
		return nil
	}
	got := r.resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	switch class := transport.Classify(int16(kmsg.Produce), got.ErrorCode); {
	case class == transport.ClassNone:
		w.txn.Advance(w.c.topic, [16]byte{}, 0, 1)
		w.txn.Wrote(w.c.topic, 0, got.BaseOffset)
		w.value = ""
		return nil
	case class.Retries():
		return nil
	}
	w.value = ""
	err := kerr.ErrorForCode(got.ErrorCode)
	w.txn.Fail(&txnsession.Error{Op: "produce", MaybeSent: w.maybe, Err: err})
	return err
}

// Discard drops what is held, once the try in flight has ended. One that may
// still arrive at the broker is reported.
func (w *cellWriter) Discard(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.flight != nil {
		select {
		case r := <-w.flight:
			if err := w.answered(r); err != nil {
				return nil // the transaction is being aborted anyway
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if w.value != "" && w.maybe {
		w.txn.Fail(&txnsession.Error{Op: "produce", MaybeSent: true, Err: fmt.Errorf("dropped without an answer")})
	}
	w.value = ""
	return nil
}

// Settle forgets the transaction.
func (w *cellWriter) Settle(txnsession.Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.value, w.txn = "", nil
}
