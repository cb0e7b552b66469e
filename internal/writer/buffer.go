package writer

import (
	"sync"
	"time"
)

// Size classes grow by a factor of four, so that a batch that fills up is
// copied a third of its size in all.
const (
	classes   = 7
	classStep = 2 // bits
)

// freeList keeps slices for their next use. It is not a sync.Pool: the
// collector empties those, and what is kept here is large and needed again a
// moment later. It is shared by all writers of the process, so that a thousand
// sessions do not keep a thousand sets.
//
// What was not needed for sweepEvery of use is let go.
type freeList[T any] struct {
	smallest int // capacity of the first class
	limit    int // of what is kept, in elements
	clear    func([]T)

	mu    sync.Mutex
	kept  [classes][][]T
	low   [classes]int // fewest kept since the last sweep
	held  int          // elements kept
	swept time.Time
}

const sweepEvery = 5 * time.Second

var (
	buffers = &freeList[byte]{smallest: 4 << 10, limit: 64 << 20}
	records = &freeList[rec]{smallest: 16, limit: 1 << 20, clear: func(s []rec) { clear(s) }}
)

func (f *freeList[T]) class(n int) int {
	for c, size := 0, f.smallest; c < classes; c, size = c+1, size<<classStep {
		if n <= size {
			return c
		}
	}
	return -1
}

// get returns an empty slice with room for n elements.
func (f *freeList[T]) get(n int) []T {
	c := f.class(n)
	if c < 0 {
		return make([]T, 0, n)
	}
	f.mu.Lock()
	if last := len(f.kept[c]) - 1; last >= 0 {
		s := f.kept[c][last]
		f.kept[c][last] = nil
		f.kept[c] = f.kept[c][:last]
		f.low[c] = min(f.low[c], last)
		f.held -= cap(s)
		f.mu.Unlock()
		return s
	}
	f.low[c] = 0
	f.mu.Unlock()
	return make([]T, 0, f.smallest<<(classStep*c))
}

// grow returns s with room for n elements in all.
func (f *freeList[T]) grow(s []T, n int) []T {
	if n <= cap(s) {
		return s
	}
	bigger := append(f.get(n), s...)
	f.put(s)
	return bigger
}

// put takes a slice back. The caller must not use it any more, and its length
// must be what it had written.
func (f *freeList[T]) put(s []T) {
	c := f.class(cap(s))
	if c < 0 || cap(s) != f.smallest<<(classStep*c) {
		return // not one of ours
	}
	if f.clear != nil {
		f.clear(s)
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.swept) > sweepEvery {
		f.sweep(now)
	}
	if f.held+cap(s) > f.limit {
		return
	}
	f.kept[c] = append(f.kept[c], s[:0])
	f.held += cap(s)
}

func (f *freeList[T]) sweep(now time.Time) {
	f.swept = now
	for c := range f.kept {
		idle := min(f.low[c], len(f.kept[c]))
		keep := f.kept[c][idle:]
		f.held -= idle * (f.smallest << (classStep * c))
		n := copy(f.kept[c], keep)
		clear(f.kept[c][n:])
		f.kept[c] = f.kept[c][:n]
		f.low[c] = n
	}
}
