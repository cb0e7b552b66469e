package txnsession_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/txnsession"
)

func TestCommitIsVisibleAndAbortIsNot(t *testing.T) { each(t, testCommitIsVisibleAndAbortIsNot) }

func testCommitIsVisibleAndAbortIsNot(t *testing.T, b backend) {
	k := b.kit(t)
	s, w := k.open("id", "a")
	id, epoch := s.ProducerID(), s.ProducerEpoch()
	require.NoError(t, s.Commit(k.ctx(10*time.Second)))
	require.Equal(t, txnsession.StateReady, s.State())
	require.Equal(t, id, s.ProducerID())
	require.Equal(t, k.next(epoch), s.ProducerEpoch())
	require.Equal(t, []string{"a"}, k.committed(0))

	require.NoError(t, s.Begin(k.ctx(10*time.Second)))
	require.NoError(t, w.write(0, "b"))
	require.NoError(t, s.Abort(k.ctx(10*time.Second)))
	require.Equal(t, []string{"a"}, k.committed(0))
	require.Equal(t, []txnsession.Verdict{txnsession.Committed, txnsession.Aborted}, w.settled)
	require.Equal(t, 2, k.requests(kmsg.EndTxn))
	require.NoError(t, s.Close(context.Background()))
	require.Equal(t, txnsession.StateClosed, s.State())
}
