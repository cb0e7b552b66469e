package writer

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// maxOwners bounds the goroutines that wait for Own. Below transaction.version
// 2 the session adds the partitions of concurrent calls in one request.
const maxOwners = 64

// startBatch makes an open batch for p, and sees to all that it needs to leave:
// a leader, and the partition's place in the transaction.
func (w *Writer) startBatch(p *partition) *batch {
	p.topic.look(w)
	if p.sink == nil && !p.held {
		p.lead()
	}
	b := p.start()
	if p.own == unowned {
		p.takeUp(p.topic.snap.ID)
	}
	w.watch()
	w.linger(b)
	return b
}

// startSending has p's broker look at a batch that is new or full.
func (w *Writer) startSending(p *partition, b *batch) {
	if b.state == batchOpen && b.size() >= p.topic.maxBytes {
		p.close(b)
	}
	if p.sink != nil {
		p.sink.pump()
	}
}

// leader is the node that p's batches go to, -1 if unknown.
func (p *partition) leader() int32 {
	if p.sink == nil {
		return -1
	}
	return p.sink.node
}

// lead finds p's leader in what is cached, or holds p back until metadata names
// one. Batches in flight stay where they are: nothing follows them elsewhere
// before they are answered.
func (p *partition) lead() {
	w := p.run.w
	snap := w.cluster.CachedTopic(p.topic.name)
	err := error(kerr.UnknownTopicOrPartition)
	leader := int32(-1)
	if snap != nil {
		if p.recreated(snap) && !p.adopt(snap.ID) {
			p.run.fail(p.errorf(errRecreated), false)
			return
		}
		switch {
		case snap.Err != nil:
			err = snap.Err
		case int(p.id) < len(snap.Partitions):
			leader, err = snap.Partitions[p.id].Leader, snap.Partitions[p.id].Err
		}
	}
	if leader < 0 {
		if err == nil {
			err = kerr.LeaderNotAvailable
		}
		p.sink = nil
		p.missed(err)
		return
	}
	p.sink = w.sinkOf(leader)
	p.sink.activate(p)
}

// missed notes that p has no leader, or that the one it had knows nothing of it,
// and holds p back until metadata has been asked; or it ends the run, once that
// has happened too often for a topic that may not exist.
func (p *partition) missed(err error) {
	w := p.run.w
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) {
		p.unknown++
		if w.opts.UnknownRetries >= 0 && p.unknown > w.opts.UnknownRetries {
			p.run.fail(p.errorf(err), false)
			return
		}
	}
	p.fails++
	p.holdForMetadata()
}

// holdFor holds p back for d.
func (p *partition) holdFor(d time.Duration) {
	p.held = true
	time.AfterFunc(d, func() {
		w := p.run.w
		w.mu.Lock()
		defer w.unlock()
		p.release()
	})
}

// release lets p go on after it was held back.
func (p *partition) release() {
	if !p.held {
		return
	}
	p.held = false
	if !p.pending() {
		return
	}
	p.lead()
	if p.sink != nil && !p.held {
		p.sink.pump()
	}
}

// holdForMetadata holds p back until the topic's metadata is newer, and a while
// longer if that has not helped before.
func (p *partition) holdForMetadata() {
	t, w := p.topic, p.run.w
	p.held = true
	t.held = append(t.held, p)
	if t.refreshing {
		return
	}
	t.refreshing = true
	wait := time.Duration(0)
	if p.fails > 1 {
		wait = w.retryAfter(p.fails-1, 0)
	}
	ctx := p.run.ctx
	go func() {
		select {
		case <-w.cluster.RefreshTopics(t.name):
		case <-ctx.Done():
		}
		sleep(ctx, wait)
		w.mu.Lock()
		defer w.unlock()
		held := t.held
		t.held, t.refreshing = nil, false
		t.look(w)
		for _, p := range held {
			p.release()
		}
	}()
}

// takeUp has p taken into the transaction.
func (p *partition) takeUp(topicID [16]byte) {
	w := p.run.w
	p.own, p.topicID = owning, topicID
	w.toOwn = append(w.toOwn, p)
	if w.owners < maxOwners {
		w.owners++
		go w.ownAll()
	}
}

// adopt moves p to the topic that has taken the place of the one it was owned
// as: what is known may have been old when the transaction began. It is too late
// for that, and the answer is false, once a batch may have been written.
func (p *partition) adopt(topicID [16]byte) bool {
	if p.known || p.inflight > 0 {
		return false
	}
	if p.own == owning {
		p.topicID = topicID // the answer of Own is for another one then
		return true
	}
	for _, b := range p.queue {
		if b.unsure {
			return false
		}
	}
	for _, b := range p.queue {
		b.sequenced = false
		if b.state == batchReady {
			b.state = batchClosed
		}
	}
	p.takeUp(topicID)
	return true
}

// ownAll takes partitions into the transaction, off the way of Produce: it may
// wait for the markers of the last transaction, and for the coordinator.
func (w *Writer) ownAll() {
	w.mu.Lock()
	for len(w.toOwn) > 0 {
		p := w.toOwn[0]
		id := p.topicID
		w.toOwn = w.toOwn[1:]
		w.unlock()
		seq, err := p.run.txn.Own(p.run.ctx, p.topic.name, id, p.id)
		w.mu.Lock()
		if err == nil && p.topicID != id {
			w.toOwn = append(w.toOwn, p)
			continue
		}
		p.joined(seq, err)
	}
	w.toOwn = nil
	w.owners--
	w.unlock()
}

func (p *partition) joined(seq int32, err error) {
	w := p.run.w
	if err != nil {
		p.run.fail(p.errorf(err), false)
		return
	}
	p.own, p.seq = owned, seq
	for _, b := range p.queue {
		if b.state == batchClosed && !b.sequenced {
			p.number(b)
			w.finish(b)
		}
	}
	if p.sink != nil {
		p.sink.pump()
	}
}
