package faultnet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Any is the Key or Node of a [Fault] that means every key or every node.
const Any = -1

// Forever is the Times of a [Fault] that never wears out.
const Forever = -1

// Action is what happens to a request that a [Fault] matches.
type Action uint8

const (
	// Refuse fails the write before a byte of the request leaves, closes the
	// connection, and refuses the next dial to the same address, once for each
	// hit. A fault of any key without Match also matches dials themselves: then
	// each refused dial is a hit, and none is owed for a request.
	Refuse Action = iota + 1
	// CutBefore takes the request from the client without an error and closes
	// the connection. The broker never sees the request.
	CutBefore
	// CutAfter delivers the request, waits for the broker's answer, drops it
	// and closes the connection: what the request does has been done.
	CutAfter
	// CutLate takes the request and closes the connection for the client, but
	// keeps the broker's side and delivers the request there after Delay, or on
	// Release when Delay is 0: a request still under way while its client has
	// gone on. The answer is read and dropped.
	CutLate
	// Delay delivers the request and holds its answer for Delay from the moment
	// it arrived, or until Release when Delay is 0.
	Delay
	// DelayRequest takes the request without an error and holds it for Delay,
	// or until Release when Delay is 0; what the client writes after it waits
	// behind it. If the client closes the connection first the request is never
	// delivered (CutLate is the action for that).
	DelayRequest
	// Duplicate writes the request twice, one copy behind the other, and drops
	// the second answer.
	Duplicate
	// Answer keeps the request from the broker and answers it with Code, in
	// each place where the protocol has an error code for that request.
	Answer
	// AnswerAfter delivers the request, waits for the broker's answer, and
	// gives the client the same as Answer would instead.
	AnswerAfter
	// Rewrite delivers the request and passes the broker's decoded answer
	// through Edit. A Code other than 0 is set in it first.
	Rewrite
)

var actionNames = [...]string{
	0:      "none",
	Refuse: "Refuse", CutBefore: "CutBefore", CutAfter: "CutAfter", CutLate: "CutLate",
	Delay: "Delay", DelayRequest: "DelayRequest", Duplicate: "Duplicate",
	Answer: "Answer", AnswerAfter: "AnswerAfter", Rewrite: "Rewrite",
}

// String returns the name of the constant, "none" for 0.
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Fault says which requests are met and what happens to them. The zero Key and
// the zero Node mean Produce and node 0: write [Any] where they do not matter.
type Fault struct {
	// Key is the request's API key, or Any. Any also meets the ApiVersions and
	// SASL requests with which a client opens a connection.
	Key int16
	// Node is a broker's node id, or Any. Node ids are learnt from the Metadata
	// answers that pass by; a connection to an address that no answer has named
	// (often a seed's) has no node id and matches only Any.
	Node int32
	// Addr is the address as the client dialled it; empty means any.
	Addr string
	// Skip lets that many matching requests pass first.
	Skip int
	// Times is how many requests are met: 0 means one, Forever all of them.
	Times int
	// Action is what happens.
	Action Action
	// Code is the error code of Answer, AnswerAfter and Rewrite.
	Code int16
	// Delay is the time of Delay, DelayRequest and CutLate, where 0 means until
	// Release. For CutAfter, Answer, AnswerAfter and Rewrite it holds the
	// outcome for that long as well, and 0 means not at all.
	Delay time.Duration
	// Match, if set, must also agree. It is called from the goroutine that
	// writes, for each request that Key, Node and Addr let through, with Body
	// complete whatever its size; Body is valid only during the call. It may
	// call the Net's methods, but not block.
	Match func(Request) bool
	// Edit, if set, changes the answer that Answer and AnswerAfter built, or
	// that Rewrite received, before it is encoded. req is nil when the request
	// could not be decoded. It runs in a goroutine of the client's and may not
	// block.
	Edit func(req kmsg.Request, resp kmsg.Response)
}

func (f *Fault) limit() int {
	if f.Times == 0 {
		return 1
	}
	return f.Times
}

// holds tells whether a match is held, and until when: a hold of 0 lasts until
// Release.
func (f *Fault) holds() bool {
	switch f.Action {
	case Delay, DelayRequest, CutLate:
		return true
	default:
		return f.Delay > 0
	}
}

// Injection is a fault in place. Its methods may be called at any time from any
// goroutine.
type Injection struct {
	owner *Net
	fault Fault

	// Guarded by owner.mu.
	skipped int
	hits    int
	gone    bool           // matches no more: removed or worn out
	release chan struct{}  // closed by Release, then replaced
	owed    map[string]int // dials that Refuse still has to refuse, by address
	err     error
}

// Inject puts a fault in place. Faults are asked in the order in which they were
// injected; the first that takes a request is the only one that meets it, and
// one that skips it leaves it to the next.
func (n *Net) Inject(f Fault) *Injection {
	inj := &Injection{owner: n, fault: f, release: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if f.Action == 0 || int(f.Action) >= len(actionNames) {
		inj.err = fmt.Errorf("faultnet: no such action: %s", f.Action)
		inj.gone = true
		return inj
	}
	n.faults = append(n.faults, inj)
	n.injections = append(n.injections, inj)
	return inj
}

// Hits returns how many requests (and, for Refuse of any key, dials) the fault
// has met.
func (i *Injection) Hits() int {
	i.owner.mu.Lock()
	defer i.owner.mu.Unlock()
	return i.hits
}

// WaitHits waits until the fault has met n requests. For the actions that hold,
// the n-th request is then being held. It returns the cause of ctx's end if that
// comes first.
func (i *Injection) WaitHits(ctx context.Context, n int) error {
	return i.owner.wait(ctx, func() bool { return i.hits >= n })
}

// Release lets go of everything the fault holds now. Requests that it meets
// later are held again.
func (i *Injection) Release() {
	i.owner.mu.Lock()
	defer i.owner.mu.Unlock()
	close(i.release)
	i.release = make(chan struct{})
}

// Remove ends the fault and lets go of everything it holds. It may be called
// again.
func (i *Injection) Remove() {
	i.owner.mu.Lock()
	defer i.owner.mu.Unlock()
	i.removeLocked()
}

func (i *Injection) removeLocked() {
	i.owner.retireLocked(i)
	i.owner.injections = slices.DeleteFunc(i.owner.injections, func(o *Injection) bool { return o == i })
	close(i.release)
	i.release = make(chan struct{})
}

// Err returns why the fault could not do its work, nil if it could: an unknown
// action, or an answer that could not be built. In the latter case the
// connection was closed instead.
func (i *Injection) Err() error {
	i.owner.mu.Lock()
	defer i.owner.mu.Unlock()
	return i.err
}

func (i *Injection) fail(err error) {
	i.owner.mu.Lock()
	defer i.owner.mu.Unlock()
	if i.err == nil {
		i.err = err
	}
}

// hold is one held request or answer.
type hold struct {
	release <-chan struct{}
	delay   time.Duration // 0: until release
	until   time.Time     // set when the waiting begins
}

// start begins the waiting, once.
func (h *hold) start() {
	if h.delay > 0 && h.until.IsZero() {
		h.until = time.Now().Add(h.delay)
	}
}

// over tells whether the hold has ended.
func (h *hold) over() bool {
	select {
	case <-h.release:
		return true
	default:
		return !h.until.IsZero() && !time.Now().Before(h.until)
	}
}
