package txnsession_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ktxn/ktxn/txnsession"
)

// B06 on real brokers: the coordinator's own timeout, then each way on.
func TestB06_RealTimeout(t *testing.T) {
	for _, b := range backends {
		if b.real == nil {
			continue // kfake's timeout is the one of its first InitProducerId, and silent
		}
		for _, how := range []string{"commit, abort", "commit, initialize", "abort", "produce, abort"} {
			t.Run(b.name+" "+how, func(t *testing.T) {
				t.Parallel()
				k := b.kit(t)
				s, w := k.open("id", "r", txnsession.TransactionTimeout(500*time.Millisecond))
				require.Eventually(t, func() bool { return strings.HasSuffix(k.describe("id").State, "Abort") }, 30*time.Second, 20*time.Millisecond, "the coordinator times it out")
				k.decided()
				t.Log(k.describe("id"), s.ProducerEpoch())
				switch how {
				case "produce, abort":
					err := w.write(0, "late")
					require.Error(t, err)
					require.Equal(t, txnsession.StateAbortableError, s.State(), err)
				case "abort":
				default:
					err := s.Commit(k.ctx(10 * time.Second))
					require.True(t, txnsession.IsNotCommitted(err) && txnsession.IsAbortable(err), err)
				}
				if how == "commit, initialize" {
					require.NoError(t, s.Initialize(k.ctx(10*time.Second)))
				} else {
					require.NoError(t, s.Abort(k.ctx(10*time.Second)))
				}
				require.Empty(t, k.committed(0))
				require.NoError(t, s.Begin(k.ctx(10*time.Second)))
				require.NoError(t, w.write(0, "next"))
				require.NoError(t, s.Commit(k.ctx(10*time.Second)))
				require.Equal(t, []string{"next"}, k.committed(0))
			})
		}
	}
}
