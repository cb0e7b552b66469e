package writer_test

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reply is what a handler makes of a request instead of what the fake broker
// would answer.
type reply struct {
	apply  bool                              // append it first, as usual
	code   int16                             // for every partition
	edit   func(*kmsg.ProduceResponse)       // a last change to the answer
	err    error                             // no answer at all
	unsent bool                              // nor a byte written
	wait   <-chan struct{}                   // before anything
	codes  func(topic string, p int32) int16 // for single partitions
	noResp bool                              // an empty answer
}

// fakeLane is the brokers' side: it encodes requests in order, checks them as a
// broker does and appends them.
type fakeLane struct {
	mu       sync.Mutex
	version  int16
	delay    time.Duration
	handle   func(node int32, n int, req *kmsg.ProduceRequest) *reply // nil: as usual
	nodes    map[int32]*fakeNode
	logs     map[string]*fakeLog
	names    map[[16]byte]string
	leader   func(topic string, p int32) int32 // nil: whoever is asked
	faults   []error                           // rules that a request broke
	requests []sent
	flying   int
	maxFly   int
	closed   bool
}

type sent struct {
	node    int32
	version int16
	batches []sentBatch
}

type sentBatch struct {
	topic     string
	partition int32
	seq       int32
	n         int
	epoch     int16
}

type fakeNode struct {
	calls   []call
	running bool
	queue   chan call
	served  chan struct{}
}

type call struct {
	req     kmsg.Request
	written func()
	done    func(kmsg.Response, bool, error)
	body    *kmsg.ProduceRequest
	version int16
	n       int
}

func newFakeLane(c *fakeCluster) *fakeLane {
	l := &fakeLane{version: 13, nodes: make(map[int32]*fakeNode), logs: make(map[string]*fakeLog), names: make(map[[16]byte]string)}
	for name, t := range c.topics {
		l.names[t.ID] = name
	}
	return l
}

func (l *fakeLane) Produce(node int32, req kmsg.Request, written func(), done func(kmsg.Response, bool, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[node]
	if n == nil {
		n = &fakeNode{}
		l.nodes[node] = n
	}
	n.calls = append(n.calls, call{req: req, written: written, done: done})
	if !n.running {
		n.running = true
		n.queue = make(chan call, 16)
		before := n.served
		n.served = make(chan struct{})
		go l.write(node, n, n.queue)
		go l.serve(node, n.queue, before, n.served)
	}
}

// slowLane holds requests back before they are encoded, as a connection that is
// still being made.
type slowLane struct {
	*fakeLane
	open  chan struct{}
	until time.Duration // if set, instead of open
}

func (l *slowLane) Produce(node int32, req kmsg.Request, written func(), done func(kmsg.Response, bool, error)) {
	go func() {
		if l.until > 0 {
			pass(l.until)
		} else {
			<-l.open
		}
		l.fakeLane.Produce(node, req, written, done)
	}()
}

// twiceLane encodes a request a second time, as kgo does on a new connection
// when nothing could be written to the old one.
type twiceLane struct {
	*fakeLane
	again chan struct{}
	body  []byte // of the second time
}

func (l *twiceLane) Produce(_ int32, req kmsg.Request, written func(), done func(kmsg.Response, bool, error)) {
	go func() {
		req.SetVersion(13)
		req.AppendTo(nil)
		written()
		<-l.again
		l.body = req.AppendTo(nil)
		done(nil, true, errors.New("reset"))
	}()
}

// lookingLane keeps the last request.
type lookingLane struct {
	*fakeLane
	req kmsg.Request
}

func (l *lookingLane) Produce(node int32, req kmsg.Request, written func(), done func(kmsg.Response, bool, error)) {
	l.req = req
	l.fakeLane.Produce(node, req, written, done)
}

// write is a connection's writing side.
func (l *fakeLane) write(node int32, n *fakeNode, queue chan call) {
	for {
		l.mu.Lock()
		if len(n.calls) == 0 {
			n.running = false
			close(queue)
			l.mu.Unlock()
			return
		}
		c := n.calls[0]
		n.calls = n.calls[1:]
		if l.closed {
			l.mu.Unlock()
			c.done(nil, false, kgo.ErrClientClosed)
			continue
		}
		version := min(l.version, c.req.MaxVersion())
		l.mu.Unlock()
		if needed := c.req.(interface{ NeededVersion() int16 }).NeededVersion(); version < needed {
			c.done(nil, false, kerr.UnsupportedVersion)
			continue
		}
		c.req.SetVersion(version)
		c.body = kmsg.NewPtrProduceRequest()
		c.body.Version = version
		c.version = version
		if err := c.body.ReadFrom(c.req.AppendTo(nil)); err != nil {
			l.fault(fmt.Errorf("unreadable request: %w", err))
		}
		l.mu.Lock()
		l.flying++
		l.maxFly = max(l.maxFly, l.flying)
		c.n = len(l.requests)
		l.requests = append(l.requests, l.note(node, c.body))
		l.mu.Unlock()
		c.written()
		queue <- c
	}
}

// serve is the broker: one request after the other.
func (l *fakeLane) serve(node int32, queue chan call, before, served chan struct{}) {
	defer close(served)
	if before != nil {
		<-before
	}
	for c := range queue {
		l.mu.Lock()
		handle, delay := l.handle, l.delay
		l.mu.Unlock()
		if delay > 0 {
			pass(delay)
		}
		r := &reply{apply: true}
		if handle != nil {
			if made := handle(node, c.n, c.body); made != nil {
				r = made
			}
		}
		if r.wait != nil {
			<-r.wait
		}
		resp := l.answer(node, c.body, r)
		if r.edit != nil {
			r.edit(resp)
		}
		l.mu.Lock()
		l.flying--
		l.mu.Unlock()
		if r.err != nil {
			c.done(nil, !r.unsent, r.err)
			continue
		}
		c.done(resp, true, nil)
	}
}

func (l *fakeLane) fault(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, err)
}

func (l *fakeLane) broken() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.faults...)
}

func (l *fakeLane) sent() []sent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]sent(nil), l.requests...)
}

func (l *fakeLane) values(topic string, p int32) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lg := l.logs[fmt.Sprintf("%s/%d", topic, p)]; lg != nil {
		return append([]string(nil), lg.values...)
	}
	return nil
}

func (l *fakeLane) topicName(version int16, rt *kmsg.ProduceRequestTopic) (string, bool) {
	if version < 13 {
		return rt.Topic, true
	}
	name, ok := l.names[rt.TopicID]
	return name, ok
}

func (l *fakeLane) note(node int32, req *kmsg.ProduceRequest) sent {
	s := sent{node: node, version: req.Version}
	seen := make(map[string]bool)
	for i := range req.Topics {
		rt := &req.Topics[i]
		name, _ := l.topicName(req.Version, rt)
		if seen[name] {
			l.faults = append(l.faults, fmt.Errorf("topic %q twice in a request", name))
		}
		seen[name] = true
		parts := make(map[int32]bool)
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			if parts[rp.Partition] {
				l.faults = append(l.faults, fmt.Errorf("partition %d twice in a request", rp.Partition))
			}
			parts[rp.Partition] = true
			b, err := readBatch(rp.Records)
			if err != nil {
				l.faults = append(l.faults, err)
			}
			s.batches = append(s.batches, sentBatch{name, rp.Partition, b.FirstSequence, int(b.NumRecords), b.ProducerEpoch})
		}
	}
	return s
}
