package writer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/writer"
	"github.com/ktxn/ktxn/txnsession"
)

// The end of a record's context drops it, as long as its batch is not written.
func TestRecordContexts(t *testing.T) {
	own := errors.New("the caller's own reason")
	for name, tc := range map[string]struct {
		setup func(r *rig)
		want  error // nil: written
	}{
		"in an open batch":      {func(r *rig) { r.session.gate = make(chan struct{}) }, own},
		"without a leader":      {func(r *rig) { r.cluster.set("t", 1, -1, -1, -1) }, own},
		"of an unknown topic":   {func(r *rig) { r.cluster.remove("t") }, own},
		"being retried":         {func(r *rig) { r.lane.handle = once(1000, code(19)) }, own},
		"written, not answered": {func(r *rig) { r.lane.delay = time.Minute }, nil},
	} {
		for _, inRecord := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, func(_ *rig, o *writer.Options) { o.UnknownRetries = -1 })
					tc.setup(r)
					tx := r.session.begin()
					var p promised
					ctx, cancel := context.WithCancelCause(bg)
					rc := rec(0, "a")
					if inRecord {
						rc.Context = ctx
						r.src.Produce(bg, rc, p.promise, true)
					} else {
						r.src.Produce(ctx, rc, p.promise, true)
						require.Equal(t, ctx, rc.Context)
					}
					pass(time.Second)
					cancel(own)
					pass(time.Second)
					if tc.want == nil {
						require.NoError(t, r.session.commit(bg, tx))
						p.require(t, 1, nil)
						return
					}
					p.require(t, 1, tc.want)
					require.ErrorIs(t, p.errs[0], context.Canceled)
					require.Error(t, r.session.commit(bg, tx))
					require.NoError(t, r.session.abort(bg, tx))
				})
			})
		}
	}
}

// Every context of a batch's records counts, not only the first one's.
func TestContextOfALaterRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.session.gate = make(chan struct{})
		tx := r.session.begin()
		var p promised
		first, cancelFirst := context.WithCancel(bg)
		defer cancelFirst()
		second, cancelSecond := context.WithCancel(bg)
		for _, ctx := range []context.Context{first, second, first} {
			r.src.Produce(ctx, rec(0, "v"), p.promise, true)
		}
		cancelSecond()
		pass(time.Second)
		p.require(t, 3, context.Canceled)
		require.NoError(t, r.session.abort(bg, tx))
	})
}

// RecordDeliveryTimeout bounds how long anything may take, with the right word
// on whether the record may have been written.
func TestRecordDeliveryTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		setup     func(r *rig)
		maybeSent bool
	}{
		"the gate does not open":     {func(r *rig) { r.session.gate = make(chan struct{}) }, false},
		"the topic stays unknown":    {func(r *rig) { r.cluster.remove("t") }, false},
		"no leader":                  {func(r *rig) { r.cluster.set("t", 1, -1, -1, -1) }, false},
		"the broker refuses":         {func(r *rig) { r.lane.handle = once(1000, code(19)) }, false},
		"the broker does not answer": {func(r *rig) { r.lane.delay = 10 * time.Second }, true},
		"answers are lost": {func(r *rig) {
			r.lane.handle = once(1000, func(*kmsg.ProduceRequest) *reply { return &reply{err: errors.New("reset")} })
		}, true},
		"connections cannot be made": {func(r *rig) {
			r.lane.handle = once(1000, func(*kmsg.ProduceRequest) *reply { return &reply{err: errors.New("refused"), unsent: true} })
		}, false},
		"connections hang":            {func(r *rig) { r.useLane(&slowLane{fakeLane: r.lane, open: make(chan struct{}), until: time.Minute}) }, false},
		"the broker is busy for ever": {func(r *rig) { r.lane.handle = once(1<<20, code(51)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(r *rig, o *writer.Options) { o.RecordTimeout, o.UnknownRetries = 2*time.Second, -1; r.options = o })
				tc.setup(r)
				tx := r.session.begin()
				var p promised
				begun := time.Now()
				r.produce(&p, 0, "a")
				require.ErrorIs(t, r.session.commit(bg, tx), kgo.ErrRecordTimeout)
				require.Less(t, time.Since(begun), 2500*time.Millisecond)
				p.require(t, 1, kgo.ErrRecordTimeout)
				var e *txnsession.Error
				require.ErrorAs(t, tx.failures()[0], &e)
				require.Equal(t, tc.maybeSent, e.MaybeSent)
				require.NoError(t, r.session.abort(bg, tx))
				pass(2 * time.Minute) // the late answers
				require.Equal(t, 1, p.len())
			})
		})
	}
}
