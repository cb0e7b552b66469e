package transport

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// topicSpacing is the least time between two requests for a topic.
	topicSpacing = 50 * time.Millisecond
	// topicBound is how long one request may take, its retries included.
	topicBound = 10 * time.Second
)

// topicLoad gathers the names for one Metadata request.
type topicLoad struct {
	names map[string]struct{}
	done  chan struct{}
}

// RefreshTopics loads topics again, all that are in use if none is named. The
// channel is closed once an answer that is newer than this call is cached, or
// the request failed, or the client is closed. One request is on its way at a
// time; names that come in meanwhile go together into the next.
func (c *Client) RefreshTopics(names ...string) <-chan struct{} {
	tc := &c.topics
	tc.mu.Lock()
	defer tc.mu.Unlock()
	if len(names) == 0 {
		names = tc.names()
	}
	if tc.next == nil {
		tc.next = &topicLoad{names: make(map[string]struct{}), done: make(chan struct{})}
	}
	load := tc.next
	for _, name := range names {
		tc.entryLocked(name)
		load.names[name] = struct{}{}
	}
	if !tc.loading {
		tc.loading = c.spawn(tc.run)
		if !tc.loading { // the client is closed
			tc.next = nil
			tc.lastErr = kgo.ErrClientClosed
			close(load.done)
		}
	}
	return load.done
}

// run loads until no names are left.
func (tc *topicCache) run() {
	for {
		if wait := tc.spacing(); wait > 0 {
			_ = sleep(tc.c.ctx, wait, nil) // a closed client is seen below
		}
		tc.mu.Lock()
		load := tc.next
		tc.next = nil
		if load == nil {
			tc.loading = false
			tc.mu.Unlock()
			return
		}
		now := time.Now()
		for name := range load.names {
			tc.entryLocked(name).asked = now
		}
		tc.mu.Unlock()

		topics, err := tc.load(load.names)
		tc.mu.Lock()
		tc.lastErr = err
		for _, t := range topics {
			e := tc.entryLocked(t.Name)
			e.topic.Store(e.overlaid(t))
		}
		tc.mu.Unlock()
		close(load.done)
	}
}

// spacing returns how long the next request has to wait. One name that was not
// asked for lately is enough for it to go at once.
func (tc *topicCache) spacing() time.Duration {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	if tc.next == nil || len(tc.next.names) == 0 {
		return 0
	}
	least := topicSpacing
	for name := range tc.next.names {
		least = min(least, topicSpacing-time.Since(tc.entryLocked(name).asked))
	}
	return least
}

// load sends one Metadata request.
func (tc *topicCache) load(names map[string]struct{}) ([]*Topic, error) {
	if len(names) == 0 {
		return nil, nil
	}
	cl, err := tc.c.lookup.conns.client()
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = tc.auto
	for name := range names {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, rt)
	}
	ctx, cancel := context.WithTimeout(tc.c.ctx, topicBound)
	defer cancel()
	// kgo tries several brokers, which is fine for a question, and learns
	// the brokers' addresses from the answer.
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		tc.c.log.Log(kgo.LogLevelDebug, "unable to load topics", "topics", len(names), "err", err)
		return nil, err
	}
	topics := make([]*Topic, 0, len(resp.Topics))
	for i := range resp.Topics {
		if t := newTopic(&resp.Topics[i]); t != nil {
			topics = append(topics, t)
		}
	}
	return topics, codeErrorOrNil(resp.ErrorCode)
}

// newTopic returns a topic of an answer, nil if it makes no sense.
func newTopic(rt *kmsg.MetadataResponseTopic) *Topic {
	if rt.Topic == nil {
		return nil
	}
	t := &Topic{Name: *rt.Topic, ID: rt.TopicID, Err: codeErrorOrNil(rt.ErrorCode), At: time.Now()}
	t.Partitions = make([]Partition, len(rt.Partitions))
	for i := range t.Partitions {
		t.Partitions[i] = Partition{Leader: -1, LeaderEpoch: -1, Err: kerr.UnknownTopicOrPartition}
	}
	for _, rp := range rt.Partitions {
		if int(rp.Partition) < 0 || int(rp.Partition) >= len(t.Partitions) {
			continue // numbers with a gap: what is missing stays unknown
		}
		p := Partition{Leader: rp.Leader, LeaderEpoch: rp.LeaderEpoch, Err: codeErrorOrNil(rp.ErrorCode)}
		if p.Err == nil && p.Leader < 0 {
			p.Err = kerr.LeaderNotAvailable
		}
		t.Partitions[rp.Partition] = p
	}
	return t
}

func codeErrorOrNil(code int16) error {
	if code == 0 {
		return nil
	}
	return codeError(code, "")
}
