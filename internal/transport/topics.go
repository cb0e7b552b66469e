package transport

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Topic is one topic as a broker described it. It never changes.
type Topic struct {
	Name       string
	ID         [16]byte // zero: the cluster has no topic ids
	Partitions []Partition
	Err        error // of the topic, such as kerr.UnknownTopicOrPartition
	At         time.Time
}

// Partition is one partition of a Topic.
type Partition struct {
	Leader      int32 // -1: none
	LeaderEpoch int32 // -1: unknown
	Err         error
}

// topicCache has what is known of the topics in use. Reads are lock-free, and
// an entry's topic is replaced as a whole.
type topicCache struct {
	c      *Client
	maxAge time.Duration
	auto   bool // create missing topics

	entries sync.Map // of *topicEntry by name; writes are under mu

	mu      sync.Mutex // guards what follows
	next    *topicLoad // gathers names for the next request; nil: none
	loading bool
	lastErr error // of the last request
	timer   *time.Timer
	stopped bool
}

// topicEntry is one topic in use.
type topicEntry struct {
	topic atomic.Pointer[Topic]
	used  atomic.Bool // since the last background refresh

	asked time.Time            // guarded by the cache's mutex
	hints map[int32]leaderHint // guarded by the cache's mutex; leaders newer than the topic's
}

type leaderHint struct{ leader, epoch int32 }

// entry returns the entry of a name, nil if there is none.
func (tc *topicCache) entry(name string) *topicEntry {
	e, ok := tc.entries.Load(name)
	if !ok {
		return nil
	}
	return e.(*topicEntry)
}

// CachedTopic returns what is known of a topic, nil if nothing is. It takes no
// lock and allocates nothing.
func (c *Client) CachedTopic(name string) *Topic {
	e := c.topics.entry(name)
	if e == nil {
		return nil
	}
	if !e.used.Load() {
		e.used.Store(true)
	}
	return e.topic.Load()
}

// Topic returns what is known of a topic, and loads it if that is nothing or
// an error. A missing topic is a *Topic with kerr.UnknownTopicOrPartition as
// its Err. It tries until a broker answers or ctx ends.
func (c *Client) Topic(ctx context.Context, name string) (*Topic, error) {
	if t := c.CachedTopic(name); t != nil && t.Err == nil {
		return t, nil
	}
	for attempt := 1; ; attempt++ {
		begun := time.Now()
		select {
		case <-c.RefreshTopics(name):
		case <-ctx.Done():
			return nil, ended(ctx, c.topics.failure())
		}
		if t := c.CachedTopic(name); t != nil && !t.At.Before(begun) {
			return t, nil
		}
		err := c.topics.failure()
		if again, err := c.mayAskAgain(err); !again {
			return nil, err
		}
		wait := c.backoff(attempt)
		c.retried(Retry{Key: keyMetadata, Node: -1, Attempt: attempt, Backoff: wait, MaybeSent: true, Err: err})
		if serr := sleep(ctx, wait, c.Done()); serr != nil {
			if ctx.Err() != nil {
				serr = ended(ctx, err)
			}
			return nil, serr
		}
	}
}

// LeaderHint notes the leader that a broker named in an error answer. It is
// ignored unless its epoch is newer than what is known, and holds until
// metadata is as new.
func (c *Client) LeaderHint(topic string, partition, leader, epoch int32) {
	if leader < 0 || partition < 0 {
		return
	}
	tc := &c.topics
	tc.mu.Lock()
	defer tc.mu.Unlock()
	e := tc.entry(topic)
	if e == nil {
		return
	}
	t := e.topic.Load()
	if t == nil || int(partition) >= len(t.Partitions) || epoch <= t.Partitions[partition].LeaderEpoch {
		return
	}
	if e.hints == nil {
		e.hints = make(map[int32]leaderHint)
	}
	e.hints[partition] = leaderHint{leader, epoch}
	e.topic.Store(e.overlaid(t))
}

// overlaid returns t with the hints that are newer, and drops the others.
func (e *topicEntry) overlaid(t *Topic) *Topic {
	if old := e.topic.Load(); old != nil && old.ID != t.ID {
		e.hints = nil // the topic was created anew
	}
	maps.DeleteFunc(e.hints, func(p int32, h leaderHint) bool {
		return int(p) >= len(t.Partitions) || h.epoch <= t.Partitions[p].LeaderEpoch
	})
	if len(e.hints) == 0 {
		return t
	}
	with := *t
	with.Partitions = append([]Partition(nil), t.Partitions...)
	for p, h := range e.hints {
		with.Partitions[p] = Partition{Leader: h.leader, LeaderEpoch: h.epoch}
	}
	return &with
}

// entryLocked returns the entry of a name, made if there is none.
func (tc *topicCache) entryLocked(name string) *topicEntry {
	e := tc.entry(name)
	if e == nil {
		e = new(topicEntry)
		e.used.Store(true)
		tc.entries.Store(name, e)
		tc.armLocked()
	}
	return e
}

// failure returns the error of the last request.
func (tc *topicCache) failure() error {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	if tc.lastErr == nil {
		return kerr.UnknownServerError // a broker answered, but not for this topic
	}
	return tc.lastErr
}

// armLocked has the background refresh come once more.
func (tc *topicCache) armLocked() {
	if tc.timer == nil && !tc.stopped {
		tc.timer = time.AfterFunc(tc.maxAge, tc.tick)
	}
}

// tick refreshes the topics that were used since the last tick and drops the
// others: who comes back to one of them loads it.
func (tc *topicCache) tick() {
	tc.mu.Lock()
	var used []string
	for name, e := range tc.entries.Range {
		if e.(*topicEntry).used.Swap(false) {
			used = append(used, name.(string))
		} else {
			tc.entries.Delete(name)
		}
	}
	tc.timer = nil
	if len(used) > 0 {
		tc.armLocked()
	}
	tc.mu.Unlock()
	if len(used) > 0 {
		tc.c.RefreshTopics(used...)
	}
}

func (tc *topicCache) stop() {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	tc.stopped = true
	if tc.timer != nil {
		tc.timer.Stop()
	}
}

// names returns the names of all topics in use.
func (tc *topicCache) names() []string {
	var names []string
	for name := range tc.entries.Range {
		names = append(names, name.(string))
	}
	return names
}
