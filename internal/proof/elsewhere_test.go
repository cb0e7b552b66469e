package proof_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/txnsession"
)

// A prepared transaction is ended by a stranger, with an EndTxn of the new rules
// (v5, which moves the epoch) or of the old ones (v4, which does not). The
// writer, and a committer that comes late, call an end as well: the same one is
// a success, the other is told the truth, and the writer goes on.
func TestEndedElsewhere(t *testing.T) {
	both(t, 1, func(k *kit) {
		t := k.t
		nc := k.client()
		var want []string
		for _, version := range []int16{4, 5} {
			for _, committed := range []bool{true, false} {
				for _, commit := range []bool{true, false} {
					for _, late := range []bool{true, false} {
						name := fmt.Sprintf("v%d committed=%t, commit=%t late=%t", version, committed, commit, late)
						s := k.ready(nc)
						p := k.producer(s)
						k.open(s, p, name)
						txn, err := s.Prepare(k.ctx())
						require.NoError(t, err, name)
						require.NoError(t, k.endAs(version, txn, committed), name)
						if committed {
							want = append(want, name)
						}
						if late {
							requireEnd(t, k.resume(nc, txn), committed, commit, name)
						}
						requireEnd(t, s, committed, commit, name)
						if s.State() == txnsession.StateAbortableError {
							require.NoError(t, s.Abort(k.ctx()), name)
						}
						k.open(s, p, "next of "+name)
						require.NoError(t, s.Commit(k.ctx()), name)
						want = append(want, "next of "+name)
					}
				}
			}
		}
		require.Equal(t, want, values(k.committed()))
	})
}

// resume knows the bare identity, and the witness as well on the embedded
// cluster: its coordinator forgets how a transaction ended.
func (k *kit) resume(nc *netclient.Client, txn txnsession.PreparedTxn) *txnsession.Session {
	k.t.Helper()
	s, err := txnsession.ResumePrepared(nc, txn)
	if k.real != nil {
		s, err = txnsession.Resume(nc, txn.TransactionalID, txn.ProducerID, txn.ProducerEpoch)
	}
	require.NoError(k.t, err)
	return s
}

// requireEnd calls an end of a transaction that has ended in a known way.
func requireEnd(t *testing.T, s *txnsession.Session, committed, commit bool, name string) {
	t.Helper()
	call := s.Abort
	if commit {
		call = s.Commit
	}
	err := call(t.Context())
	switch {
	case committed == commit:
		require.NoError(t, err, name)
	case commit:
		require.True(t, txnsession.IsNotCommitted(err), "%s: %v", name, err)
	default:
		require.Error(t, err, name)
		require.False(t, txnsession.IsNotCommitted(err), "%s: %v", name, err)
		require.False(t, txnsession.IsOutcomeUnknown(err), "%s: %v", name, err)
	}
	out, err := s.Outcome(t.Context())
	require.NoError(t, err, name)
	verdict := txnsession.Aborted
	if committed {
		verdict = txnsession.Committed
	}
	require.Equal(t, verdict, out.Verdict, "%s: %s", name, out.Evidence.Text)
}

// endAs ends a transaction with an EndTxn of one version, as a client of that
// age does.
func (k *kit) endAs(version int16, txn txnsession.PreparedTxn, commit bool) error {
	age := kversion.Stable()
	age.SetMaxKeyVersion(int16(kmsg.EndTxn), version)
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.seeds...), kgo.DisableClientMetrics(), kgo.MaxVersions(age))
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = txn.TransactionalID, txn.ProducerID, txn.ProducerEpoch, commit
	for ctx := k.ctx(); ; {
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(resp.ErrorCode)
		if !errors.Is(err, kerr.ConcurrentTransactions) || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}
