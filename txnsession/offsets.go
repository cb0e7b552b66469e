package txnsession

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/statemachine"
	"github.com/ktxn/ktxn/internal/transport"
)

// topicBound is how long a topic that is being made, or made again, is waited
// for: not for the whole of the caller's budget, since it may be gone.
const topicBound = 5 * time.Second

// errOffsetsOpen refuses a commit that would leave out offsets which the
// caller wanted in the transaction.
var errOffsetsOpen = fmt.Errorf("%w: SendOffsets was cut short; repeat it with the same offsets, or Abort", ErrState)

// GroupMetadata is what a consumer group knows its member by; it fences
// offsets of a member that is no longer the owner (KIP-447). Read it in the
// argument list of SendOffsets and not earlier: it moves with each rebalance.
type GroupMetadata struct {
	Group, MemberID string
	// Generation is the generation or, in the consumer protocol of KIP-848,
	// the member epoch.
	Generation int32
	InstanceID *string
}

// GroupOf returns the metadata of the group that cl consumes in. Where cl is
// no member at the moment the result is one that SendOffsets refuses.
func GroupOf(cl *kgo.Client) GroupMetadata {
	var g GroupMetadata
	g.Group, _ = cl.OptValue(kgo.ConsumerGroup).(string)
	if id, gen := cl.GroupMetadata(); id != "" {
		g.MemberID, g.Generation = id, gen
	}
	if id, ok := cl.OptValue(kgo.InstanceID).(string); ok && id != "" {
		g.InstanceID = &id
	}
	return g
}

// Unfenced returns metadata that commits offsets for group without saying
// which member does: nothing fences a zombie then. It is for those who own
// their partitions in another way.
func Unfenced(group string) GroupMetadata { return GroupMetadata{Group: group, Generation: -1} }

func (g GroupMetadata) valid() error {
	switch {
	case g.Group == "":
		return errors.New("the group is empty")
	case g.MemberID == "" && g.Generation != -1:
		return errors.New("the member id is empty: the consumer is no member of its group now; use Unfenced to commit without fencing")
	}
	return nil
}

// offsetsCall is what an interrupted SendOffsets wanted.
type offsetsCall struct {
	offsets map[string]map[int32]kgo.EpochOffset
	group   string
}

func (c *offsetsCall) same(o *offsetsCall) bool {
	return c.group == o.group && maps.EqualFunc(c.offsets, o.offsets, maps.Equal)
}

// SendOffsets makes the consumed offsets (the next to read, as kgo commits
// them) part of the open transaction, for the group that group tells. Without
// offsets it does nothing.
//
// Legal in StateInTransaction. If ctx ends first, Commit is refused until the
// call is repeated with the same offsets, or the transaction is aborted: a
// commit without them would process their records twice. A refusal that has to
// do with the group's members (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
// FENCED_INSTANCE_ID, STALE_MEMBER_EPOCH, GROUP_ID_NOT_FOUND) is abortable and
// is not retried.
func (s *Session) SendOffsets(ctx context.Context, offsets map[string]map[int32]kgo.EpochOffset, group GroupMetadata) error {
	const op = "send offsets"
	s.mu.Lock()
	t := s.txn
	// A call that was cut short may be repeated although a Commit has closed
	// the gate: it is what that Commit waits for.
	repeat := t != nil && !t.sealed && slices.ContainsFunc(t.offsets, (&offsetsCall{offsets, group.Group}).same)
	if !s.legalLocked(statemachine.CallSendOffsets) || t == nil || !repeat && !t.enterLocked(ctx) {
		defer s.mu.Unlock()
		return s.stateErrorLocked(op)
	}
	if repeat {
		t.calls++
	}
	defer t.leave()
	s.mu.Unlock()
	return s.sendOffsets(ctx, t, offsets, group)
}

func (s *Session) sendOffsets(ctx context.Context, t *transaction, offsets map[string]map[int32]kgo.EpochOffset, group GroupMetadata) error {
	const op = "send offsets"
	if err := group.valid(); err != nil {
		return s.fail(op, isNeverSent, false, err)
	}
	n := 0
	for _, parts := range offsets {
		n += len(parts)
	}
	s.mu.Lock()
	if t.sealed || t.ended || s.txn != t || s.state != StateInTransaction {
		defer s.mu.Unlock()
		return s.stateErrorLocked(op)
	}
	if n == 0 {
		s.mu.Unlock()
		return nil
	}
	t.worked = true
	gate := s.markers
	s.mu.Unlock()

	call := &offsetsCall{group: group.Group, offsets: make(map[string]map[int32]kgo.EpochOffset, len(offsets))}
	for topic, parts := range offsets {
		call.offsets[topic] = maps.Clone(parts)
	}
	ctx, done := joinContext(ctx, t.ctx, ErrState)
	defer done()
	if err := gate.wait(ctx, t.ctx); err != nil {
		return s.offsetsFailed(t, call, keyTxnOffsetCommit, transport.Result{Err: err})
	}
	sent := false
	if !t.newRules() {
		res := s.lane.Do(ctx, transport.Call{
			Target: transport.TxnCoordinator(s.id),
			New: func() kmsg.Request {
				req := kmsg.NewPtrAddOffsetsToTxnRequest()
				req.TransactionalID, req.Group = s.id, group.Group
				req.ProducerID, req.ProducerEpoch = t.ident.id, t.ident.epoch
				return req
			},
			Code: func(r kmsg.Response) (int16, string) { return r.(*kmsg.AddOffsetsToTxnResponse).ErrorCode, "" },
		})
		s.noteOpenWork(t, res)
		if res.Err != nil {
			return s.offsetsFailed(t, call, keyAddOffsetsToTxn, res)
		}
		s.mu.Lock()
		t.known = true
		s.mu.Unlock()
		sent = res.Sent
	}
	res := s.commitOffsets(ctx, t, call, group)
	s.noteOpenWork(t, res)
	if res.Err != nil {
		res.Sent = res.Sent || sent
		return s.offsetsFailed(t, call, keyTxnOffsetCommit, res)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.offsets = slices.DeleteFunc(t.offsets, call.same)
	return nil
}

// noteOpenWork notes a request that may still be under way: below
// transaction.version 2 a late copy would become part of the next transaction.
func (s *Session) noteOpenWork(t *transaction, res transport.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.openWork = t.openWork || res.Unanswered
}

// commitOffsets sends TxnOffsetCommit: v5 and later register the group with
// the coordinator themselves, v6 (KIP-1319) names topics by their ids.
func (s *Session) commitOffsets(ctx context.Context, t *transaction, call *offsetsCall, group GroupMetadata) transport.Result {
	c := transport.Call{
		Target: transport.GroupCoordinator(group.Group),
		Code:   offsetsCode,
	}
	if t.newRules() {
		c.MinVersion = 5
	} else {
		c.MaxVersion = 4
	}
	began := time.Now()
	c.Give = func(r transport.Result) bool {
		missing := r.Code == kerr.UnknownTopicID.Code || r.Code == kerr.UnknownTopicOrPartition.Code
		if missing {
			for topic := range call.offsets {
				s.tc.RefreshTopics(topic)
			}
		}
		return missing && time.Since(began) > topicBound
	}
	ids := s.topicIDs(ctx, t, call)
	if ids == nil && !c.Capped && t.newRules() {
		c.MaxVersion = 5
	}
	c.New = func() kmsg.Request {
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.Group = s.id, group.Group
		req.ProducerID, req.ProducerEpoch = t.ident.id, t.ident.epoch
		req.MemberID, req.Generation, req.InstanceID = group.MemberID, group.Generation, group.InstanceID
		for topic, parts := range call.offsets {
			rt := kmsg.NewTxnOffsetCommitRequestTopic()
			rt.Topic = topic
			if ids != nil {
				rt.TopicID = ids[topic]
				if now := s.tc.CachedTopic(topic); now != nil && now.ID != ([16]byte{}) {
					rt.TopicID = now.ID
				}
			}
			for p, o := range parts {
				rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
				rp.Partition, rp.Offset, rp.LeaderEpoch = p, o.Offset, o.Epoch
				rp.Metadata = kmsg.StringPtr("")
				rt.Partitions = append(rt.Partitions, rp)
			}
			req.Topics = append(req.Topics, rt)
		}
		return req
	}
	return s.lane.Do(ctx, c)
}

// topicIDs returns the id of every topic of call, or nil if one is unknown:
// then the request names topics by name.
func (s *Session) topicIDs(ctx context.Context, t *transaction, call *offsetsCall) map[string][16]byte {
	if !t.newRules() {
		return nil
	}
	ids := make(map[string][16]byte, len(call.offsets))
	for topic := range call.offsets {
		info, err := s.tc.Topic(ctx, topic)
		if err != nil || info == nil || info.Err != nil || info.ID == ([16]byte{}) {
			return nil
		}
		ids[topic] = info.ID
	}
	return ids
}

func offsetsCode(r kmsg.Response) (int16, string) {
	var worst int16
	for _, rt := range r.(*kmsg.TxnOffsetCommitResponse).Topics {
		for _, rp := range rt.Partitions {
			worst = worse(keyTxnOffsetCommit, worst, rp.ErrorCode)
		}
	}
	return worst, ""
}

// offsetsFailed decides what a failed SendOffsets leaves behind. Cut short, it
// blocks Commit until it is repeated. Where the broker kept answering that it
// cannot now, or refused, the transaction can only be aborted.
func (s *Session) offsetsFailed(t *transaction, call *offsetsCall, key int16, res transport.Result) error {
	const op = "send offsets"
	s.mu.Lock()
	defer s.unlock()
	if t.ended || s.txn != t || s.state != StateInTransaction {
		e := s.stateErrorLocked(op)
		e.MaybeSent = res.Unanswered
		return e
	}
	cut := res.Class.Retries() || res.Class == transport.ClassUnknown && res.Unanswered || res.Class == transport.ClassNone
	if cut && (res.Code == 0 || res.Unanswered) {
		if !slices.ContainsFunc(t.offsets, call.same) {
			t.offsets = append(t.offsets, call)
		}
		f := facts(0)
		if !res.Sent {
			f = isNeverSent
		}
		return s.errorLocked(op, f, res.Unanswered, res.Err)
	}
	e := s.failLocked(op, key, res.Err)
	e.MaybeSent = res.Unanswered
	return e
}
