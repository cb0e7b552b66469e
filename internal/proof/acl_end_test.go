package proof_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/txnsession"
)

// The right to the transactional id is taken back while a transaction is open:
// Commit and Abort are refused and nothing of it is visible; after the grant the
// session aborts and goes on.
func TestARightTakenBackInMidTransaction(t *testing.T) {
	l := newLoop(t)
	l.allow(l.txn, l.write)
	s := l.session(l.securedClient(l.user), l.txn.name)
	require.NoError(t, s.Initialize(l.ctx()))
	p := l.producer(s)
	l.open(s, p, "before")
	l.revoke(l.txn)

	err := s.Commit(l.ctx())
	require.ErrorIs(t, err, kerr.TransactionalIDAuthorizationFailed)
	require.True(t, txnsession.IsNotCommitted(err), "%v", err)
	require.Equal(t, txnsession.StateAbortableError, s.State())
	err = s.Abort(l.ctx())
	require.ErrorIs(t, err, kerr.TransactionalIDAuthorizationFailed)
	require.True(t, txnsession.IsNotCommitted(err), "%v", err)
	require.Equal(t, "Ongoing", l.describe(l.txn.name).State)

	l.allow(l.txn)
	require.NoError(t, s.Abort(l.ctx()))
	l.open(s, p, "after")
	require.NoError(t, s.Commit(l.ctx()))
	require.Equal(t, []string{"after"}, values(l.committed()))
}

// A committer needs WRITE on the transactional id and nothing else. What it may
// not do it says, and may try again.
func TestACommitterNeedsOneRight(t *testing.T) {
	l := newLoop(t)
	writer := l.session(l.securedClient(kafkatest.SuperUser), l.txn.name)
	require.NoError(t, writer.Initialize(l.ctx()))
	l.open(writer, l.producer(writer), "prepared")
	txn, err := writer.Prepare(l.ctx())
	require.NoError(t, err)

	c, err := txnsession.ResumePrepared(l.securedClient(l.user), txn)
	require.NoError(t, err)
	err = c.Commit(l.ctx())
	require.ErrorIs(t, err, kerr.TransactionalIDAuthorizationFailed)
	require.False(t, txnsession.IsNotCommitted(err), "another may commit it: %v", err)
	require.Empty(t, l.committed())

	l.allow(l.txn)
	require.NoError(t, c.Commit(l.ctx()))
	require.Equal(t, 1, l.requests(kmsg.EndTxn), "the refused call found no coordinator")
	require.Equal(t, []string{"prepared"}, values(l.committed()))
	require.NoError(t, writer.Commit(l.ctx()))
	require.NoError(t, writer.Close(l.ctx()))
}

// Outcome needs DESCRIBE on the transactional id, and once the coordinator has
// forgotten READ on the witness's topic. Without them it does not fail; it does
// not know, and says why.
func TestOutcomeSaysWhichRightIsMissing(t *testing.T) {
	l := newLoop(t)
	writer := l.session(l.securedClient(kafkatest.SuperUser), l.txn.name)
	require.NoError(t, writer.Initialize(l.ctx()))
	l.open(writer, l.producer(writer), "v")
	txn, err := writer.Prepare(l.ctx())
	require.NoError(t, err)
	s, err := txnsession.ResumePrepared(l.securedClient(l.user), txn)
	require.NoError(t, err)
	ask := func(want txnsession.Verdict, because ...*kerr.Error) {
		t.Helper()
		out, err := s.Outcome(l.ctx())
		require.NoError(t, err)
		require.Equal(t, want, out.Verdict, out.Evidence.Text)
		for _, e := range because {
			require.Contains(t, out.Evidence.Text, e.Message)
		}
	}
	read := right{kmsg.ACLResourceTypeTopic, l.topic, kmsg.ACLOperationRead}

	ask(txnsession.Unknown, kerr.TransactionalIDAuthorizationFailed, kerr.TopicAuthorizationFailed)
	l.allow(read.describe()) // who may know of the topic may not read it yet
	ask(txnsession.Unknown, kerr.TransactionalIDAuthorizationFailed, kerr.TopicAuthorizationFailed)
	l.allow(l.txn.describe())
	ask(txnsession.Open)
	require.NoError(t, writer.Commit(l.ctx()))
	ask(txnsession.Committed)

	// The next owner of the id makes the coordinator forget.
	require.NoError(t, writer.Initialize(l.ctx()))
	ask(txnsession.Unknown, kerr.TopicAuthorizationFailed)
	l.allow(read)
	ask(txnsession.Committed)
	l.revoke(l.txn.describe())
	ask(txnsession.Committed)
}
