package writer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/writer"
	"github.com/ktxn/ktxn/txnsession"
)

func TestProduceSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, manual := range []bool{false, true} {
			r := newRig(t, func(_ *rig, o *writer.Options) { o.ManualFlushing = manual })
			tx := r.session.begin()
			require.Empty(t, r.src.ProduceSync(bg))
			results := r.src.ProduceSync(bg, rec(0, "a"), rec(1, "b"), rec(2, "c"))
			require.NoError(t, results.FirstErr())
			require.Len(t, results, 3)
			require.Zero(t, r.src.Records(), "nothing is buffered when it has returned")
			require.NoError(t, r.session.commit(bg, tx))
			require.ErrorIs(t, r.src.ProduceSync(bg, rec(0, "d")).FirstErr(), txnsession.ErrState)
		}
	})
}

// The end of its context ends the call, and the transaction: the caller was not
// told what became of the record.
func TestProduceSyncCutByItsContext(t *testing.T) {
	for name, setup := range map[string]func(r *rig) chan struct{}{
		"sent": func(r *rig) chan struct{} {
			hold := make(chan struct{})
			r.lane.handle = once(1, func(*kmsg.ProduceRequest) *reply { return &reply{apply: true, wait: hold} })
			return hold
		},
		"unsent": func(r *rig) chan struct{} { r.session.gate = make(chan struct{}); return r.session.gate },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				hold := setup(r)
				tx := r.session.begin()
				ctx, cancel := context.WithTimeout(bg, time.Second)
				defer cancel()
				begun := time.Now()
				err := r.src.ProduceSync(ctx, rec(0, "a"), rec(0, "b")).FirstErr()
				require.Equal(t, time.Second, time.Since(begun))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				var e *txnsession.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, name == "sent", e.MaybeSent)
				require.ErrorIs(t, r.session.commit(bg, tx), context.DeadlineExceeded)
				close(hold)
				require.NoError(t, r.session.abort(bg, tx))
				require.Equal(t, name == "sent", len(tx.failures()) == 2, "an abort tells that a Produce may arrive")
			})
		})
	}
}

// Inside a promise ProduceSync waits for itself, and ends by its context.
func TestProduceSyncInsideAPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		tx := r.session.begin()
		var inner error
		var p promised
		r.src.Produce(bg, rec(0, "a"), func(rc *kgo.Record, err error) {
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			inner = r.src.ProduceSync(ctx, rec(0, "b")).FirstErr()
			p.promise(rc, err)
		}, true)
		require.Error(t, r.session.commit(bg, tx))
		require.ErrorIs(t, inner, context.DeadlineExceeded)
		require.NoError(t, r.session.abort(bg, tx))
	})
}

// Flush, Commit and Close inside a promise wait for it, and end by their
// contexts.
func TestFlushInsideAPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		tx := r.session.begin()
		var err1, err2 error
		done := make(chan struct{})
		r.src.Produce(bg, rec(0, "a"), func(*kgo.Record, error) {
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			err1 = r.src.Flush(ctx)
			err2 = r.src.Close(ctx)
			close(done)
		}, true)
		<-done
		require.ErrorIs(t, err1, context.DeadlineExceeded)
		require.ErrorIs(t, err2, context.DeadlineExceeded)
		require.NoError(t, r.session.commit(bg, tx))
	})
}
