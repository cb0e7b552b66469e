package proof_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/txnsession"
)

// A session that is closed while its transaction is prepared, and one that was
// resumed and closed again, leave the transaction as it is: no EndTxn is sent
// and the coordinator still has it open. A third can then commit it.
func TestCloseLeavesWhatIsPrepared(t *testing.T) {
	k := onReal(t, kafkatest.Latest(), 1)
	nc := k.client()
	s := k.ready(nc)
	p := k.producer(s)
	k.open(s, p, "prepared")
	txn, err := s.Prepare(k.ctx())
	require.NoError(t, err)
	stillOpen := func() {
		t.Helper()
		require.Zero(t, k.requests(kmsg.EndTxn))
		got := k.describe(txn.TransactionalID)
		require.Equal(t, "Ongoing", got.State)
		require.Equal(t, txn.ProducerID, got.ProducerID)
		require.Equal(t, txn.ProducerEpoch, got.Epoch)
	}

	sent := k.net.Requests(-1)
	require.NoError(t, s.Close(k.ctx()))
	require.NoError(t, p.Close(k.ctx()))
	require.Equal(t, txnsession.StateClosed, s.State())
	require.Equal(t, sent, k.net.Requests(-1), "Close sends nothing at all")
	stillOpen()

	resumed, err := txnsession.ResumePrepared(nc, txn)
	require.NoError(t, err)
	require.NoError(t, resumed.Close(k.ctx()))
	require.ErrorIs(t, resumed.Commit(k.ctx()), txnsession.ErrClosed)
	require.Equal(t, sent, k.net.Requests(-1))
	stillOpen()

	// Also after it has asked something.
	asked, err := txnsession.ResumePrepared(nc, txn)
	require.NoError(t, err)
	out, err := asked.Outcome(k.ctx())
	require.NoError(t, err)
	require.Equal(t, txnsession.Open, out.Verdict, out.Evidence.Text)
	require.NoError(t, asked.Close(k.ctx()))
	stillOpen()
	require.Empty(t, k.committed())

	third, err := txnsession.ResumePrepared(nc, txn)
	require.NoError(t, err)
	require.NoError(t, third.Commit(k.ctx()))
	require.Equal(t, 1, k.requests(kmsg.EndTxn))
	require.Equal(t, []string{"prepared"}, values(k.committed()))
}
