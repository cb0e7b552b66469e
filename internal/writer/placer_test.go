package writer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/writer"
)

// strangePartitioner chooses what it is told.
type strangePartitioner struct {
	pick   func(n int) int
	strict bool
	seen   []int
}

func (p *strangePartitioner) ForTopic(string) kgo.TopicPartitioner { return p }
func (p *strangePartitioner) RequiresConsistency(*kgo.Record) bool { return p.strict }
func (p *strangePartitioner) Partition(_ *kgo.Record, n int) (at int) {
	p.seen = append(p.seen, n)
	return p.pick(n)
}

func TestPartitioners(t *testing.T) {
	for name, p := range map[string]kgo.Partitioner{
		"uniform bytes": kgo.UniformBytesPartitioner(64, true, true, nil), "default": nil,
		"least backup": kgo.LeastBackupPartitioner(), "sticky": kgo.StickyPartitioner(),
		"sticky key": kgo.StickyKeyPartitioner(nil), "round robin": kgo.RoundRobinPartitioner(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, smallBatches)
				src := r.w.Source(writer.SourceOptions{Partitioner: p})
				for range 3 {
					tx := r.session.begin()
					var out promised
					for i := range 600 {
						src.Produce(bg, &kgo.Record{Topic: "t", Value: []byte(fmt.Sprint(i))}, out.promise, true)
						if i%50 == 0 {
							synctest.Wait()
						}
					}
					for i := range 10 {
						src.Produce(bg, &kgo.Record{Topic: "t", Key: []byte{byte(i)}, Value: []byte("k")}, out.promise, true)
					}
					require.NoError(t, r.session.commit(bg, tx))
					out.require(t, 610, nil)
				}
				for i := range int32(3) {
					require.NotEmpty(t, r.lane.values("t", i), "partition %d is used", i)
				}
			})
		})
	}
}

// Partitions without a leader are not offered, except where the record must go
// to the same one always, or when there is no other.
func TestPartitionersAreOfferedWhatHasALeader(t *testing.T) {
	for name, tc := range map[string]struct {
		leaders []int32
		strict  bool
		offered int
		lands   int32
	}{
		"one has none":               {[]int32{-1, 2, 1}, false, 2, 1},
		"one has none, must be same": {[]int32{-1, 2, 1}, true, 3, 0},
		"none has one":               {[]int32{-1, -1, -1}, false, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.cluster.set("t", 1, tc.leaders...)
				part := &strangePartitioner{pick: func(int) int { return 0 }, strict: tc.strict}
				src := r.w.Source(writer.SourceOptions{Partitioner: part})
				tx := r.session.begin()
				var p promised
				rc := &kgo.Record{Topic: "t", Value: []byte("v")}
				src.Produce(bg, rc, p.promise, true)
				require.Equal(t, []int{tc.offered}, part.seen)
				require.Equal(t, tc.lands, rc.Partition)
				r.cluster.set("t", 1, 1, 2, 1)
				require.NoError(t, r.session.commit(bg, tx))
			})
		})
	}
}

// fullest is a partitioner that wants to know what is buffered, and takes the
// partition with the most.
type fullest struct {
	strangePartitioner
	told []int64
}

func (p *fullest) ForTopic(string) kgo.TopicPartitioner { return p }

func (p *fullest) PartitionByBackup(r *kgo.Record, n int, it kgo.TopicBackupIter) int {
	p.told = make([]int64, n)
	for it.Rem() > 0 {
		i, buffered := it.Next()
		p.told[i] = buffered
	}
	return int(r.Partition)
}

func TestPartitionersAreToldWhatIsBuffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.session.gate = make(chan struct{})
		part := &fullest{}
		src := r.w.Source(writer.SourceOptions{Partitioner: part})
		tx := r.session.begin()
		var p promised
		for _, at := range []int32{0, 2, 2, 0, 2} {
			src.Produce(bg, rec(at, "v"), p.promise, true)
		}
		src.Produce(bg, rec(1, "v"), p.promise, true)
		require.Equal(t, []int64{2, 0, 3}, part.told)
		close(r.session.gate)
		require.NoError(t, r.session.commit(bg, tx))
		tx = r.session.begin()
		src.Produce(bg, rec(1, "v"), p.promise, true)
		require.Equal(t, []int64{0, 0, 0}, part.told, "the last transaction's are gone")
		require.NoError(t, r.session.commit(bg, tx))
	})
}

func TestPartitionerChoosesWrongly(t *testing.T) {
	for _, pick := range []int{-1, 3, 1 << 30} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			src := r.w.Source(writer.SourceOptions{Partitioner: &strangePartitioner{pick: func(int) int { return pick }}})
			tx := r.session.begin()
			var p promised
			src.Produce(bg, &kgo.Record{Topic: "t"}, p.promise, true)
			require.ErrorContains(t, r.session.commit(bg, tx), "of 3 partitions")
			require.NoError(t, r.session.abort(bg, tx))
		})
	}
}

// A partitioner that panics does so in Produce, and the writer is still usable.
func TestPartitionerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		src := r.w.Source(writer.SourceOptions{Partitioner: &strangePartitioner{pick: func(int) int { panic("of the user's") }}})
		tx := r.session.begin()
		require.PanicsWithValue(t, "of the user's", func() { src.Produce(bg, &kgo.Record{Topic: "t"}, nil, true) })
		var p promised
		r.produce(&p, 0, "a")
		synctest.Wait()
		p.require(t, 1, nil)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		require.ErrorIs(t, r.session.commit(ctx, tx), context.DeadlineExceeded, "that record is owed")
	})
}
