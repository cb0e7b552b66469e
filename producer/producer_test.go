package producer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Committed transactions are seen once and in order, aborted ones not at all.
func TestCommitAndAbort(t *testing.T) {
	each(t, func(k *kit) {
		t := k.t
		s := k.session()
		p := k.producer(s, kgo.ProducerBatchCompression(kgo.Lz4Compression()))
		want := make([][]string, parts)
		for round := range 6 {
			require.NoError(t, s.Begin(k.ctx()))
			var out promised
			for i, v := range numbered("r"+string(rune('0'+round))+"-", 400) {
				p.Produce(k.ctx(), k.rec(i%parts, v), out.promise)
				if round%2 == 0 {
					want[i%parts] = append(want[i%parts], v)
				}
			}
			if round%2 == 1 {
				require.NoError(t, p.Flush(k.ctx()))
				require.NoError(t, s.Abort(k.ctx()))
				out.require(t, 400, nil)
				continue
			}
			require.NoError(t, s.Commit(k.ctx()))
			out.require(t, 400, nil)
			for _, r := range out.recs {
				require.GreaterOrEqual(t, r.Offset, int64(0))
				require.Positive(t, r.ProducerID+1)
			}
		}
		require.NoError(t, p.Close(k.ctx()))
		require.Equal(t, want, k.committed())
		require.NotZero(t, k.requests(kmsg.Produce))
		if k.old {
			require.NotZero(t, k.requests(kmsg.AddPartitionsToTxn))
		} else {
			require.Zero(t, k.requests(kmsg.AddPartitionsToTxn))
		}
	})
}
