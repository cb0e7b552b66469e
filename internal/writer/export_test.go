package writer

import (
	"math"

	"github.com/twmb/franz-go/pkg/kgo"
)

// What the tests' fakes stand in for.
type (
	Txn     = txn
	Session = session
	Cluster = cluster
	Lane    = lane
)

// NewWith makes a writer of fakes.
func NewWith(s Session, c Cluster, l Lane, o Options) *Writer {
	w := newWriter(s, c, l)
	if err := w.configure(&o); err != nil {
		panic(err)
	}
	return w
}

// Configure is what For does for a session that has a writer.
func (w *Writer) Configure(o *Options) error { return w.configure(o) }

// Encoder is a batch that belongs to no partition.
type Encoder struct{ b batch }

// Add encodes a record and returns how long the batch is.
func (e *Encoder) Add(r *kgo.Record) int {
	ts := r.Timestamp.UnixMilli()
	body, total, _ := e.b.fits(ts, r, math.MaxInt)
	e.b.add(rec{r: r}, ts, body, total)
	return e.b.size()
}

// Finish sums the batch, and makes room for the next one.
func (e *Encoder) Finish() {
	e.b.n = len(e.b.recs)
	e.b.stamp(1, 1, 0)
	e.b.release()
	records.put(e.b.recs)
	e.b = batch{}
}
