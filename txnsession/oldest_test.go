package txnsession_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/txnsession"
)

// Transactions work down to what Kafka 0.11 had: FindCoordinator of one id a
// request, TxnOffsetCommit without members, InitProducerId without KIP-360, no
// DescribeTransactions.
func TestOldestClusters(t *testing.T) {
	for _, c := range []struct {
		name     string
		versions *kversion.Versions
	}{
		{"0.11", kversion.V0_11_0()}, {"1.1", kversion.V1_1_0()}, {"2.4", kversion.V2_4_0()}, {"2.8", kversion.V2_8_0()}, {"3.3", kversion.V3_3_0()},
	} {
		for _, where := range []string{"cluster", "client"} {
			t.Run(c.name+" "+where, func(t *testing.T) {
				t.Parallel()
				var k *kit
				if where == "cluster" {
					k = newKit(t, kfake.MaxVersions(c.versions))
				} else {
					k = newKit(t)
					k.nc = k.client(kgo.MaxVersions(c.versions))
				}
				k.old, k.cannotDescribe = true, true
				s, w := k.open("id", "a")
				offsets := map[string]map[int32]kgo.EpochOffset{topic: {0: {Offset: 1, Epoch: -1}}}
				require.NoError(t, s.SendOffsets(k.ctx(10*time.Second), offsets, txnsession.Unfenced("g")))
				require.NoError(t, s.Commit(k.ctx(10*time.Second)))
				require.NoError(t, s.Begin(k.ctx(10*time.Second)))
				require.NoError(t, w.write(0, "b"))
				require.NoError(t, s.Abort(k.ctx(10*time.Second)))
				require.NoError(t, s.Begin(k.ctx(10*time.Second)))
				require.NoError(t, w.write(0, "c"))
				require.NoError(t, w.write(1, "d"))
				lost := k.inject(kmsg.EndTxn, faultnet.CutAfter, 1, 0)
				require.NoError(t, s.Commit(k.ctx(10*time.Second)))
				require.Equal(t, 1, lost.Hits())
				require.NoError(t, s.Begin(k.ctx(10*time.Second)), "the epoch moves, by whatever the cluster has")
				require.NoError(t, w.write(0, "e"))
				require.NoError(t, s.Commit(k.ctx(10*time.Second)))
				require.Equal(t, []string{"a", "c", "e"}, k.committed(0))
				require.Equal(t, []string{"d"}, k.committed(1))

				// A real fence is one without DescribeTransactions too.
				require.NoError(t, s.Begin(k.ctx(10*time.Second)))
				require.NoError(t, w.write(0, "f"))
				k.inject(kmsg.EndTxn, faultnet.Answer, 1, kerr.InvalidProducerEpoch.Code)
				err := s.Commit(k.ctx(10 * time.Second))
				require.True(t, txnsession.IsNotCommitted(err), err)
				require.Equal(t, []string{"a", "c", "e"}, k.committed(0))
			})
		}
	}
}
