package txnsession

import (
	"context"
	"time"
)

// transaction is one transaction of a session, from Begin (or Resume) until it
// has ended. Its identity never changes; the last one stays for Outcome. All
// fields but the first group are guarded by the session's mu.
type transaction struct {
	s       *Session
	ident   identity
	version int16 // transaction.version: which rules it runs under
	began   time.Time
	ctx     context.Context // ends when the transaction ends or is being aborted
	cancel  context.CancelFunc
	ending  chan struct{} // closed with the gate

	from PreparedTxn // what a resumed one was made from

	gated       bool // callers may do no more work
	inWork      bool // participants of PhaseWork are flushing: their context passes the gate
	sealed      bool // nobody may: flushed, or dropped
	ended       bool
	calls       int           // callers inside SendOffsets or AddPartitions
	idle        chan struct{} // closed when calls falls to 0, if somebody waits
	parts       []*Txn
	worked      bool // something was sent that the coordinator may know of
	known       bool // under old rules: the coordinator has confirmed a part of it
	failed      bool // it could only be aborted
	openWork    bool // a Produce may still arrive at its broker
	owners      map[seqKey]*ownership
	adding      *adding
	offsets     []*offsetsCall // cut short: Commit waits for their repetition
	witness     Witness
	sentEnd     bool // an EndTxn was written
	endCommit   bool // and it was a commit
	openEnd     bool // one of them has no answer that decides
	seenOpen    bool // the coordinator had it open a moment before InitProducerId
	checked     bool // a resumed one may be ended
	wasPrepared bool // another process may end it

	verdict  Verdict
	evidence Evidence
}

// ownership is one partition in a transaction.
type ownership struct {
	by         *Txn
	registered bool
}

func (s *Session) newTransaction(id identity, version int16) *transaction {
	t := &transaction{
		s: s, ident: id, version: version, began: time.Now(),
		ending: make(chan struct{}), owners: make(map[seqKey]*ownership),
		verdict: Open,
	}
	t.ctx, t.cancel = context.WithCancel(s.closing)
	return t
}

func (t *transaction) newRules() bool { return t.version >= 2 }

// commitOpenLocked reports whether a commit of t was written and nothing has
// decided yet what became of it. s.mu is held.
func (t *transaction) commitOpenLocked() bool { return t.sentEnd && t.endCommit && !t.ended }

// gateLocked closes the gate: from here on a caller's work is refused. It is
// idempotent; s.mu is held.
func (t *transaction) gateLocked() {
	if !t.gated {
		t.gated = true
		close(t.ending)
	}
}

// enterLocked counts a caller's work in, or says that the gate is closed. ctx
// may be one that a PhaseWork Flush was given. s.mu is held.
func (t *transaction) enterLocked(ctx context.Context) bool {
	if t.gated && !t.passes(ctx) || t.sealed || t.ended {
		return false
	}
	t.calls++
	return true
}

// leave counts a caller's work out.
func (t *transaction) leave() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.calls--; t.calls == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// quiet waits until no caller is at work any more. The gate is closed.
func (t *transaction) quiet(ctx context.Context) error {
	t.s.mu.Lock()
	if t.calls == 0 {
		t.s.mu.Unlock()
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.s.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// flushKey marks the context of a PhaseWork Flush with its transaction.
type flushKey struct{}

func (t *transaction) passes(ctx context.Context) bool {
	return t.inWork && ctx.Value(flushKey{}) == t
}
