package txnsession

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/statemachine"
	"github.com/ktxn/ktxn/internal/transport"
)

// The keys of the requests that a session sends.
const (
	keyProduce              = 0
	keyMetadata             = 3
	keyInitProducerID       = 22
	keyAddPartitionsToTxn   = 24
	keyAddOffsetsToTxn      = 25
	keyEndTxn               = 26
	keyTxnOffsetCommit      = 28
	keyDescribeTransactions = 65
)

type partition struct {
	topic string
	part  int32
}

// adding gathers the partitions of a transaction under old rules, so that
// callers at the same time share one AddPartitionsToTxn. The session's mu
// guards it.
type adding struct {
	known   map[partition]bool         // the coordinator has answered 0
	waiting map[partition][]chan error // not sent yet
	running bool
}

// AddPartitions makes partitions part of the open transaction. Producers of
// this module do so themselves; it is for those who send Produce in another
// way. Below transaction.version 2 it sends AddPartitionsToTxn; from 2 on the
// first Produce to a partition does the same, and only the fact that there is
// work is noted, so that an end is sent.
//
// Legal in StateInTransaction. If ctx ends first, the request may still be
// applied: repeat the call or abort. An authorization or topic error makes the
// transaction abortable.
func (s *Session) AddPartitions(ctx context.Context, partitions map[string][]int32) error {
	const op = "add partitions"
	s.mu.Lock()
	t := s.txn
	if !s.legalLocked(statemachine.CallAddPartitions) || t == nil || !t.enterLocked(ctx) {
		defer s.mu.Unlock()
		return s.stateErrorLocked(op)
	}
	defer t.leave()
	t.worked = true
	gate := s.markers
	s.mu.Unlock()
	if err := gate.wait(ctx, t.ctx); err != nil {
		return s.fail(op, isNeverSent, false, err)
	}
	if t.newRules() {
		return nil
	}
	var waits []chan error
	for topic, parts := range partitions {
		for _, p := range parts {
			waits = append(waits, s.enqueue(t, partition{topic, p}))
		}
	}
	for _, w := range waits {
		select {
		case err := <-w:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return s.fail(op, 0, true, context.Cause(ctx))
		}
	}
	return nil
}

// register makes one partition known to the coordinator under old rules. The
// end of the transaction is an answer too.
func (s *Session) register(ctx context.Context, t *transaction, topic string, part int32) error {
	select {
	case err := <-s.enqueue(t, partition{topic, part}):
		return err
	case <-ctx.Done():
		return s.fail("own", 0, true, context.Cause(ctx))
	}
}

// enqueue puts p into the next AddPartitionsToTxn and returns where its answer
// goes. The request is bound to the transaction and not to a caller: a context
// ends a wait, and what the coordinator has applied stays known.
func (s *Session) enqueue(t *transaction, p partition) chan error {
	answer := make(chan error, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.adding == nil {
		t.adding = &adding{known: make(map[partition]bool), waiting: make(map[partition][]chan error)}
	}
	a := t.adding
	if a.known[p] {
		answer <- nil
		return answer
	}
	if t.ended || s.closeBegun {
		answer <- s.stateErrorLocked("add partitions")
		return answer
	}
	a.waiting[p] = append(a.waiting[p], answer)
	if !a.running {
		a.running = true
		t.calls++ // an end waits for it
		s.work.Go(func() { s.addLoop(t, a) })
	}
	return answer
}

func (s *Session) addLoop(t *transaction, a *adding) {
	defer t.leave()
	for {
		s.mu.Lock()
		batch := a.waiting
		if len(batch) == 0 {
			a.running = false
			s.mu.Unlock()
			return
		}
		a.waiting = make(map[partition][]chan error)
		s.mu.Unlock()

		errs := s.addBatch(t, batch)
		s.mu.Lock()
		for p, waits := range batch {
			if errs[p] == nil {
				a.known[p], t.known = true, true
			}
			for _, w := range waits {
				w <- errs[p]
			}
		}
		s.mu.Unlock()
	}
}

// addBatch sends one AddPartitionsToTxn and returns the error of each
// partition. A partition that was added before stays added whatever becomes of
// this request.
func (s *Session) addBatch(t *transaction, batch map[partition][]chan error) map[partition]error {
	topics := make(map[string][]int32)
	for p := range batch {
		topics[p.topic] = append(topics[p.topic], p.part)
	}
	began := time.Now()
	res := s.lane.Do(t.ctx, transport.Call{
		Target:     transport.TxnCoordinator(s.id),
		MaxVersion: 3, // 4 is for brokers
		Give: func(r transport.Result) bool {
			return r.Code == kerr.UnknownTopicOrPartition.Code && time.Since(began) > topicBound
		},
		New: func() kmsg.Request {
			req := kmsg.NewPtrAddPartitionsToTxnRequest()
			req.TransactionalID = s.id
			req.ProducerID, req.ProducerEpoch = t.ident.id, t.ident.epoch
			for topic, parts := range topics {
				rt := kmsg.NewAddPartitionsToTxnRequestTopic()
				rt.Topic, rt.Partitions = topic, parts
				req.Topics = append(req.Topics, rt)
			}
			return req
		},
		Code: addPartitionsCode,
	})
	errs := make(map[partition]error, len(batch))
	s.noteOpenWork(t, res)
	if res.Err == nil {
		return errs
	}
	s.mu.Lock()
	defer s.unlock()
	refused := make(map[partition]int16)
	if resp, ok := res.Resp.(*kmsg.AddPartitionsToTxnResponse); ok {
		for _, rt := range resp.Topics {
			for _, rp := range rt.Partitions {
				refused[partition{rt.Topic, rp.Partition}] = rp.ErrorCode
			}
		}
	}
	// Where the end of the transaction cut the request short, that is why.
	var over error
	switch {
	case s.closeBegun:
		over = ErrClosed
	case t.ended || s.txn != t || t.ctx.Err() != nil:
		over = ErrState
	}
	for p := range batch {
		err := res.Err
		if code, ok := refused[p]; ok && code != 0 {
			err = fmt.Errorf("%s partition %d: %w", p.topic, p.part, kerr.ErrorForCode(code))
		}
		if over != nil {
			errs[p] = s.errorLocked("add partitions", 0, res.Unanswered, fmt.Errorf("%w: %w", over, err))
			continue
		}
		e := s.failLocked("add partitions", keyAddPartitionsToTxn, err)
		e.MaybeSent = res.Unanswered
		errs[p] = e
	}
	return errs
}

// addPartitionsCode picks the code that decides: the broker adds all
// partitions or none, and marks the innocent with OPERATION_NOT_ATTEMPTED.
func addPartitionsCode(r kmsg.Response) (int16, string) {
	var worst int16
	for _, rt := range r.(*kmsg.AddPartitionsToTxnResponse).Topics {
		for _, rp := range rt.Partitions {
			worst = worse(keyAddPartitionsToTxn, worst, rp.ErrorCode)
		}
	}
	return worst, ""
}

// worse returns the code that leaves the caller with less to do.
func worse(key, a, b int16) int16 {
	rank := func(code int16) int {
		if code == kerr.OperationNotAttempted.Code {
			return 1
		}
		switch transport.Classify(key, code) {
		case transport.ClassNone:
			return 0
		case transport.ClassRetriable:
			return 2
		case transport.ClassRefresh:
			return 3
		case transport.ClassAbortable, transport.ClassDenied, transport.ClassUnknown, transport.ClassUnsupported:
			return 4
		}
		return 5
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}
