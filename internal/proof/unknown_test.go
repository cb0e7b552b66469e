package proof_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/txnsession"
)

// A commit is still under way when the Initialize that is to clear the question
// is cut short in its turn. It arrives in between, and the second Initialize must
// not take the transaction for the one that it has aborted.
func TestInitializeCutShortOverAnOpenQuestion(t *testing.T) {
	both(t, 1, func(k *kit) {
		t := k.t
		s := k.ready(k.client())
		p := k.producer(s)
		k.open(s, p, "late")
		late := k.net.Inject(faultnet.Fault{Key: int16(kmsg.EndTxn), Node: faultnet.Any, Action: faultnet.CutLate})
		k.net.Inject(faultnet.Fault{Key: int16(kmsg.EndTxn), Node: faultnet.Any, Action: faultnet.Refuse, Times: faultnet.Forever})
		ctx, cancel := context.WithCancel(k.ctx())
		ended := make(chan error, 1)
		go func() { ended <- s.Commit(ctx) }()
		require.NoError(t, late.WaitHits(k.ctx(), 1))
		cancel()
		require.True(t, txnsession.IsOutcomeUnknown(<-ended))

		held := k.net.Inject(faultnet.Fault{Key: int16(kmsg.InitProducerID), Node: faultnet.Any, Action: faultnet.DelayRequest})
		ctx, cancel = context.WithCancel(k.ctx())
		go func() { ended <- s.Initialize(ctx) }()
		require.NoError(t, held.WaitHits(k.ctx(), 1))
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Equal(t, txnsession.StateUninitialized, s.State())

		late.Release()
		require.Eventually(t, func() bool { return len(k.committed()) == 1 }, quiet, 10*time.Millisecond, "the commit arrives")
		held.Release()
		k.net.Reset()
		require.NoError(t, s.Initialize(k.ctx()))
		out, err := s.Outcome(k.ctx())
		require.NoError(t, err)
		require.Equal(t, txnsession.Committed, out.Verdict, out.Evidence.Text)

		k.open(s, p, "next")
		require.NoError(t, s.Commit(k.ctx()))
		require.Equal(t, []string{"late", "next"}, values(k.committed()))
	})
}
