package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/wire"
)

// run is one Do on its way.
type run struct {
	l    *Lane
	call Call
	res  Result

	key     int16 // of the request, once there was one
	lastErr error // of the last attempt that failed
	streak  streak
	netErrs int // network errors in a row
	refresh int // answers in a row that asked for another coordinator
}

// failure is how one attempt failed.
type failure struct {
	code  int16 // 0: no answer
	class Class
	err   error
	sent  bool // this attempt may have reached the broker
}

// attempt makes one attempt and reports whether another one is to follow.
func (r *run) attempt(ctx context.Context) (again bool) {
	f := r.once(ctx)
	if f == nil {
		r.res.Err, r.res.Class = nil, ClassNone
		return false
	}
	if ctx.Err() != nil && f.class.Retries() {
		return r.endedBy(ctx, f.err)
	}
	r.res.Err, r.res.Class = f.err, f.class
	if !f.class.Retries() {
		return false
	}
	if f.class == ClassRefresh && r.call.Target.kind == targetNode {
		return false // only the caller knows who leads now
	}
	if r.call.Give != nil && r.call.Give(r.res) {
		return false
	}
	r.lastErr = f.err
	wait := r.wait(f)
	r.l.c.retried(Retry{
		Key: r.key, Node: r.res.Node, Attempt: r.res.Attempts,
		Backoff: wait, MaybeSent: f.sent, Err: f.err,
	})
	if err := sleep(ctx, wait, r.l.conns.done); err != nil {
		if ctx.Err() != nil {
			return r.endedBy(ctx, f.err)
		}
		r.res.Err, r.res.Class = closedError(f.err), ClassFatal
		return false
	}
	return true
}

// endedBy finishes the run because ctx ended.
func (r *run) endedBy(ctx context.Context, last error) bool {
	if e, ok := errors.AsType[*endedError](last); ok { // the look-up ended the same way
		last = e.last
	}
	if last == nil || errors.Is(last, ctx.Err()) {
		last = r.lastErr
	}
	r.res.Err = ended(ctx, last)
	r.res.Class = ClassRetriable
	if r.res.Unanswered {
		r.res.Class = ClassUnknown
	}
	return false
}

// once makes one attempt; nil is success.
func (r *run) once(ctx context.Context) *failure {
	if ctx.Err() != nil {
		return &failure{class: ClassRetriable, err: ctx.Err()}
	}
	node, err := r.l.resolve(ctx, r.call.Target)
	if err != nil {
		return r.lookupFailure(ctx, err)
	}
	cl, err := r.l.conns.client()
	if err != nil {
		return &failure{class: ClassFatal, err: err}
	}
	req := r.track()
	if !r.l.c.mayName(req.Key()) {
		return &failure{class: ClassUnsupported, err: fmt.Errorf("%w: the version caps have no %s", kerr.UnsupportedVersion, KeyName(req.Key()))}
	}
	r.res.Node = node
	r.res.Attempts++
	resp, err := r.send(ctx, r.l.conns.broker(cl, node), req)
	if errors.Is(err, errDetached) {
		// It belongs to its connection still, and may yet be written.
		r.res.Sent, r.res.Unanswered = true, true
		return &failure{class: ClassRetriable, err: ctx.Err(), sent: true}
	}
	if req.Written() {
		r.res.Sent, r.res.Version = true, req.GetVersion()
	}
	if err != nil {
		return r.networkFailure(ctx, req, err)
	}
	r.res.Resp, r.netErrs = resp, 0
	return r.answer(req.Key(), resp)
}

func (r *run) track() wire.Tracked {
	req := wire.Track(r.call.New())
	r.key = req.Key()
	if r.call.MaxVersion > 0 || r.call.Capped {
		req.CapVersion(r.call.MaxVersion)
	}
	if r.call.MinVersion > 0 {
		req.RequireVersion(r.call.MinVersion)
	}
	return req
}

// send sends req and waits for the answer or the end of ctx. A request that a
// broker may hold for long has a connection that kgo ends with the context:
// such a request is detached, and only the wait is bounded.
func (r *run) send(ctx context.Context, to *kgo.Broker, req wire.Tracked) (kmsg.Response, error) {
	if !endsConnection(req) {
		return wire.Send(ctx, to, req)
	}
	type answer struct {
		resp kmsg.Response
		err  error
	}
	got := make(chan answer, 1)
	if !r.l.c.spawn(func() {
		resp, err := wire.Send(context.WithoutCancel(ctx), to, req)
		got <- answer{resp, err}
	}) {
		return nil, kgo.ErrClientClosed
	}
	select {
	case a := <-got:
		return a.resp, a.err
	case <-ctx.Done():
		return nil, errDetached
	}
}

var errDetached = errors.New("the wait ended before the answer")

// endsConnection reports whether kgo gives the request a connection that it
// ends together with a cancelled request.
func endsConnection(req kmsg.Request) bool {
	switch req.Key() {
	case keyProduce, keyFetch, keyJoinGroup, keySyncGroup, keyShareFetch, keyShareAcknowledge:
		return true
	case keyListOffsets: // has a timeout, but not the connection
		return false
	}
	_, slow := req.(kmsg.TimeoutRequest)
	return slow
}

// answer judges an answer; nil is success.
func (r *run) answer(key int16, resp kmsg.Response) *failure {
	var code int16
	var msg string
	if r.call.Code != nil {
		code, msg = r.call.Code(resp)
	}
	r.res.Code = code
	row := r.l.c.classify(key, code)
	if row.Class == ClassNone {
		return nil
	}
	if row.Open {
		r.res.Unanswered = true
	}
	if !row.Class.Retries() {
		return &failure{code: code, class: row.Class, err: codeError(code, msg)}
	}
	if moved(code) {
		r.l.forget(r.call.Target, r.res.Node)
		if r.refresh++; r.refresh%3 == 0 {
			// The same node again and again: its address may be wrong.
			r.l.conns.refreshBrokers()
		}
	} else {
		r.refresh = 0
	}
	return &failure{code: code, class: row.Class, err: codeError(code, msg), sent: true}
}

// moved reports whether a code says that another node is the coordinator.
func moved(code int16) bool {
	switch code {
	case codeCoordinatorNotAvailable, codeNotCoordinator, codeTxnCoordinatorFenced:
		return true
	}
	return false
}

// lookupFailure judges the error of a look-up, which has retried what can be.
func (r *run) lookupFailure(ctx context.Context, err error) *failure {
	switch {
	case ctx.Err() != nil:
		return &failure{class: ClassRetriable, err: err}
	case errors.Is(err, kgo.ErrClientClosed):
		return &failure{class: ClassFatal, err: closedError(r.lastErr)}
	}
	class := ClassFatal
	if le := (*lookupError)(nil); errors.As(err, &le) {
		class = le.class
	}
	return &failure{class: class, err: err}
}

// networkFailure judges an attempt that got no answer.
func (r *run) networkFailure(ctx context.Context, req wire.Tracked, err error) *failure {
	f := &failure{class: ClassRetriable, err: err, sent: req.Written()}
	if f.sent {
		r.res.Unanswered = true
	}
	switch {
	case ctx.Err() != nil:
		return f
	case r.l.conns.isClosed() || errors.Is(err, kgo.ErrClientClosed):
		f.class, f.err = ClassFatal, closedError(r.lastErr)
		return f
	}
	r.netErrs++
	if !f.sent {
		f.class, f.err = r.l.c.whyNotSent(ctx, r.res.Node, req.Key(), err)
		if !f.class.Retries() {
			return f
		}
		r.l.conns.refreshBrokers()
	}
	kind := r.call.Target.kind
	if kind == targetAny || !f.sent || r.netErrs > 1 {
		r.l.forget(r.call.Target, r.res.Node)
	}
	if kind == targetNode && r.netErrs > 1 {
		f.class = ClassRefresh
	}
	return f
}

// wait returns how long to wait after f.
func (r *run) wait(f *failure) time.Duration {
	if r.call.Backoff != nil {
		return r.call.Backoff(r.res.Attempts, f.code)
	}
	return r.l.c.defaultWait(r.key, f.code, r.streak.count(f.code))
}

// closedError is the error of a call that a Close ended.
func closedError(last error) error {
	if last == nil {
		return kgo.ErrClientClosed
	}
	return fmt.Errorf("%w; the last try: %w", kgo.ErrClientClosed, last)
}

// codeError is the error of an answer.
func codeError(code int16, msg string) error {
	err := kerr.ErrorForCode(code)
	if ke := kerr.TypedErrorForCode(code); ke != nil && ke.Code != code {
		return fmt.Errorf("%w: error code %d is not known to this client", err, code)
	}
	if msg != "" {
		return fmt.Errorf("%w: %s", err, msg)
	}
	return err
}
