package writer

import (
	"bytes"
	"runtime"

	"github.com/twmb/franz-go/pkg/kgo"
)

// slots bounds how many batches are compressed and summed at once in the
// process: more would only keep the connections' goroutines from running.
var slots = make(chan struct{}, runtime.GOMAXPROCS(0))

// scratch holds what batches are compressed into before they are copied back.
var scratch = make(chan *bytes.Buffer, cap(slots))

// smallBatch is a batch that is summed on the spot: handing it to a worker
// would take longer.
const smallBatch = 16 << 10

// finish brings a closed batch on towards being ready: it is compressed, if a
// compressor is set, and summed once it has its sequence number. mu is held.
func (w *Writer) finish(b *batch) {
	if b.busy || b.state != batchClosed {
		return
	}
	if w.opts.Compressor == nil {
		b.compressed = true
	}
	switch {
	case b.compressed && !b.sequenced:
		return // comes again when it is
	case b.compressed && len(b.buf) <= smallBatch:
		b.stamp(b.p.run.id, b.p.run.epoch, b.seq)
		b.state = batchReady
		return
	}
	b.busy = true
	w.jobs = append(w.jobs, b)
	if w.workers < cap(slots) {
		w.workers++
		go w.work(w.opts.Compressor)
	}
}

// work finishes batches until there are none left to finish.
func (w *Writer) work(c kgo.Compressor) {
	w.mu.Lock()
	for len(w.jobs) > 0 {
		b := w.jobs[0]
		w.jobs[0] = nil
		w.jobs = w.jobs[1:]
		if len(w.jobs) == 0 {
			w.jobs = nil
		}
		w.unlock()
		slots <- struct{}{}
		w.job(b, c)
		<-slots
		w.mu.Lock()
	}
	w.workers--
	w.unlock()
}

// job compresses and sums one batch. The batch is its own until it is not busy
// any more.
func (w *Writer) job(b *batch, c kgo.Compressor) {
	compress := !b.compressed
	if compress {
		b.compress(c)
	}
	w.mu.Lock()
	defer w.unlock()
	b.compressed = true
	sum, seq := b.state == batchClosed && b.sequenced, b.seq
	if sum {
		w.mu.Unlock()
		b.stamp(b.p.run.id, b.p.run.epoch, seq)
		w.mu.Lock()
	}
	b.busy = false
	switch {
	case b.state.done(): // given up meanwhile
		b.release()
	case sum && b.sequenced && b.seq == seq:
		b.state = batchReady
		if s := b.p.sink; s != nil {
			s.pump()
		}
	default:
		w.finish(b) // it may have got its number meanwhile
	}
}

// compress replaces the encoded records by what they are compressed to, if that
// is smaller.
func (b *batch) compress(c kgo.Compressor) {
	var dst *bytes.Buffer
	select {
	case dst = <-scratch:
		dst.Reset()
	default:
		dst = new(bytes.Buffer)
	}
	out, codec := c.Compress(dst, b.buf)
	if out != nil && codec > kgo.CodecNone && len(out) < len(b.buf) {
		b.buf = append(b.buf[:0], out...)
		b.codec = codec
	}
	select {
	case scratch <- dst:
	default:
	}
}
