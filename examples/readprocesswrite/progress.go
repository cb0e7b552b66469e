package main

import "sync"

// fate is what happens to a transaction of the example.
type fate int

const (
	lives fate = iota
	fails      // processing goes wrong: the application aborts
	dies       // its worker is killed before the commit
)

// progress counts what is committed, and deals out the fates: the failure after
// a quarter of the input, the killing after half of it.
type progress struct {
	mu                         sync.Mutex // guards what follows
	lines, left                int
	toFail, toKill             bool
	committed, aborted, killed int
	done                       chan struct{} // closed when no line is left
}

func newProgress(lines int, fail, kill bool) *progress {
	return &progress{lines: lines, left: lines, toFail: fail, toKill: kill, done: make(chan struct{})}
}

func (p *progress) fate() fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.toFail && p.left <= p.lines*3/4:
		p.toFail = false
		return fails
	case p.toKill && p.left <= p.lines/2:
		p.toKill = false
		p.killed++
		return dies
	}
	return lives
}

func (p *progress) commit(lines int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.committed++
	if p.left -= lines; p.left == 0 {
		close(p.done)
	}
}

func (p *progress) abort() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.aborted++
}
