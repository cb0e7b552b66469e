package txnsession

import (
	"context"
	"errors"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/statemachine"
	"github.com/ktxn/ktxn/internal/transport"
)

// Txn is one transaction as a participant sees it. Its identity never changes.
// It outlives nothing: once the transaction has ended its methods are refused
// or ignored, so that a late answer cannot touch the next one. Get it from
// Session.Enlist.
type Txn struct {
	t     *transaction
	p     Participant
	phase Phase
}

// ProducerID returns the producer id of this transaction.
func (t *Txn) ProducerID() int64 { return t.t.ident.id }

// ProducerEpoch returns the producer epoch of this transaction.
func (t *Txn) ProducerEpoch() int16 { return t.t.ident.epoch }

// TransactionVersion returns which rules this transaction runs under: from 2
// on Produce v12 and later register their partitions themselves (KIP-890),
// below Own does and Produce may be v11 at most.
func (t *Txn) TransactionVersion() int16 { return t.t.version }

// Ending is closed when the transaction takes no more work from callers: its
// end has begun.
func (t *Txn) Ending() <-chan struct{} { return t.t.ending }

// Own makes this participant the one writer of a partition in this transaction
// and returns the sequence number of its next batch. Call it before the first
// batch of each partition gets its header; later calls return the present
// number. A zero topicID is a cluster without topic ids.
//
// It waits until the markers of the session's last transaction are written
// and, on a cluster below transaction.version 2, until the coordinator knows
// the partition (AddPartitionsToTxn); ctx bounds the wait, and an owner whose
// wait was cut may call again. It fails with [ErrPartitionOwned] if another
// participant owns the partition, and with [ErrState] once the transaction
// takes no more work. From Own on the transaction counts as having work, so
// that an end is sent for it.
func (t *Txn) Own(ctx context.Context, topic string, topicID [16]byte, partition int32) (nextSequence int32, err error) {
	tx, s := t.t, t.t.s
	key := seqKey{topic, topicID, partition}
	s.mu.Lock()
	if tx.sealed || tx.ended || s.txn != tx || tx.ctx.Err() != nil || s.state != StateInTransaction {
		defer s.mu.Unlock()
		return 0, s.stateErrorLocked("own")
	}
	o := tx.owners[key]
	switch {
	case o == nil:
		o = &ownership{by: t}
		tx.owners[key] = o
		tx.worked = true
	case o.by != t:
		defer s.mu.Unlock()
		return 0, s.errorLocked("own", isNeverSent, false, ErrPartitionOwned)
	case o.registered:
		defer s.mu.Unlock()
		return s.seqs[key], nil
	}
	gate := s.markers
	s.mu.Unlock()

	if err := gate.wait(ctx, tx.ctx); err != nil {
		return 0, s.fail("own", isNeverSent, false, err)
	}
	if !tx.newRules() {
		if err := s.register(ctx, tx, topic, partition); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if tx.sealed || tx.ended || s.txn != tx {
		return 0, s.stateErrorLocked("own")
	}
	o.registered = true
	return s.seqs[key], nil
}

// Advance tells the session that the partition's leader has accepted so many
// records of this participant: the next batch has the sequence number after
// them, in this transaction and, below transaction.version 2, in the next.
func (t *Txn) Advance(topic string, topicID [16]byte, partition, records int32) {
	tx, s := t.t, t.t.s
	key := seqKey{topic, topicID, partition}
	s.mu.Lock()
	defer s.mu.Unlock()
	if tx.ended || s.txn != tx || records < 0 {
		return
	}
	// Sequence numbers wrap from MaxInt32 to 0.
	s.seqs[key] = int32((int64(s.seqs[key]) + int64(records)) % (math.MaxInt32 + 1))
}

// Wrote notes a record of this transaction that is acknowledged, as a witness
// for PreparedTxn and Outcome. The first is kept.
func (t *Txn) Wrote(topic string, partition int32, offset int64) {
	tx, s := t.t, t.t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if tx.ended || tx.witness.Topic != "" || offset < 0 {
		return
	}
	w := Witness{Topic: topic, Partition: partition, Offset: offset}
	for key := range tx.owners {
		if key.topic == topic && key.part == partition {
			w.TopicID = key.id
		}
	}
	tx.witness = w
}

// SendOffsets is Session.SendOffsets for a participant: it is also accepted
// while the participants flush, until the last of them has.
func (t *Txn) SendOffsets(ctx context.Context, offsets map[string]map[int32]kgo.EpochOffset, group GroupMetadata) error {
	tx, s := t.t, t.t.s
	s.mu.Lock()
	if tx.sealed || tx.ended {
		defer s.mu.Unlock()
		return s.stateErrorLocked("send offsets")
	}
	tx.calls++ // an end waits for it
	s.mu.Unlock()
	defer tx.leave()
	return s.sendOffsets(ctx, tx, offsets, group)
}

// Fail reports that a part of the transaction's work has failed, so that it
// must not be committed. The retry table decides whether the session can abort
// and go on, or is fenced. It is ignored once the transaction has ended, and
// after the last Flush.
func (t *Txn) Fail(err error) {
	tx, s := t.t, t.t.s
	if err == nil {
		err = errors.New("a participant failed without a reason")
	}
	s.mu.Lock()
	defer s.unlock()
	if tx.ended || s.txn != tx {
		return
	}
	var e *Error
	if errors.As(err, &e) && e.MaybeSent {
		tx.openWork = true
	}
	if tx.sealed {
		return
	}
	_ = s.failLocked("produce", keyProduce, err) // the next call tells it
}

// failLocked moves the session into the error state that err leads to, by the
// retry table of the request with that key. s.mu is held.
func (s *Session) failLocked(op string, key int16, err error) *Error {
	class := transport.ClassAbortable
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		class = transport.Classify(key, ke.Code)
		if key == keyProduce && ke.Code == kerr.InvalidProducerEpoch.Code {
			// The coordinator may have timed the transaction out, or
			// another owner taken over: Abort finds out.
			class = transport.ClassAbortable
		}
	}
	switch class {
	case transport.ClassFenced:
		return s.killLocked(op, isFenced, err)
	case transport.ClassFatal:
		return s.killLocked(op, 0, err)
	}
	cause := s.errorLocked(op, isAbortable|isNotCommitted, false, err)
	s.setState(statemachine.Fail, cause)
	s.restateLocked(cause)
	return s.errorLocked(op, isAbortable|isNotCommitted, false, err)
}

// killLocked ends the session for good. The transaction that is open can
// certainly not be committed any more, unless a commit of it is unresolved or
// another process may commit it. s.mu is held.
func (s *Session) killLocked(op string, f facts, err error) *Error {
	f |= isFatal
	switch t := s.txn; {
	case t == nil, t.ended && t.verdict == Aborted, !t.ended && !t.commitOpenLocked() && !t.wasPrepared:
		f |= isNotCommitted
	}
	cause := s.errorLocked(op, f, false, err)
	s.setState(statemachine.Kill, cause)
	if s.txn != nil {
		s.txn.gateLocked()
		s.txn.cancel()
	}
	s.stopBeatsLocked()
	s.restateLocked(cause)
	return s.errorLocked(op, f, false, err)
}
