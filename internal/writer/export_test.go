package writer

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
