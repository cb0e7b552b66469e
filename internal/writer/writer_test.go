package writer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/writer"
)

// rig is a writer with all that it stands on faked.
type rig struct {
	t       *testing.T
	session *fakeSession
	cluster *fakeCluster
	lane    *fakeLane
	w       *writer.Writer
	src     *writer.Source
	options *writer.Options // for useLane; nil: the defaults
}

// newRig has topic "t" with three partitions, led by nodes 1, 2 and 1. Records
// say their partition themselves.
func newRig(t *testing.T, set ...func(*rig, *writer.Options)) *rig {
	r := &rig{t: t, session: newFakeSession(), cluster: newFakeCluster()}
	r.cluster.set("t", 1, 1, 2, 1)
	r.lane = newFakeLane(r.cluster)
	o := writer.DefaultOptions()
	o.Compressor, o.Codecs = nil, nil
	for _, fn := range set {
		fn(r, &o)
	}
	r.w = writer.NewWith(r.session, r.cluster, r.lane, o)
	r.src = r.w.Source(writer.SourceOptions{Partitioner: kgo.ManualPartitioner()})
	t.Cleanup(func() { require.NoError(t, r.lane.broken()) })
	return r
}

// useLane makes the writer anew on another lane.
func (r *rig) useLane(l writer.Lane) {
	o := writer.DefaultOptions()
	o.Compressor, o.Codecs = nil, nil
	if r.options != nil {
		o = *r.options
	}
	r.w = writer.NewWith(r.session, r.cluster, l, o)
	r.src = r.w.Source(writer.SourceOptions{Partitioner: kgo.ManualPartitioner()})
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func rec(partition int32, value string) *kgo.Record {
	return &kgo.Record{Topic: "t", Partition: partition, Value: []byte(value)}
}

func (r *rig) produce(p *promised, partition int32, values ...string) {
	for _, v := range values {
		r.src.Produce(r.t.Context(), rec(partition, v), p.promise, true)
	}
}

func numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}

func TestCommittedRecordsAreWrittenInOrder(t *testing.T) {
	r := newRig(t)
	for round := range 3 {
		var p promised
		tx := r.session.begin()
		want := numbered(fmt.Sprintf("r%d-", round), 100)
		for i, v := range want {
			r.produce(&p, int32(i%3), v)
		}
		require.NoError(t, r.session.commit(context.Background(), tx))
		p.require(t, 100, nil)
		for _, rc := range p.records {
			require.EqualValues(t, 7, rc.ProducerID)
			require.EqualValues(t, 1+round, rc.ProducerEpoch)
			require.True(t, rc.Attrs.IsTransactional())
			require.EqualValues(t, -1, rc.LeaderEpoch)
			require.Equal(t, r.lane.values("t", rc.Partition)[rc.Offset], string(rc.Value))
		}
		require.Empty(t, tx.failures())
		require.NotEmpty(t, tx.wrote)
	}
	require.Zero(t, r.src.Records())
	require.Zero(t, r.src.Bytes())
}
