package txnsession

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/ktxn/ktxn/internal/link"
	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/netclient"
)

// Committer ends many prepared transactions at once: the committer process of
// KIP-1310's use case 4.1. It looks coordinators up in batches, spreads the
// requests over the netclient's lanes, and sends one EndTxn for each
// transaction. It needs no producer, keeps no state, and may be used by
// several goroutines at once.
type Committer struct {
	nc  *netclient.Client
	tc  *transport.Client
	cfg committerConfig
}

type committerConfig struct {
	inFlight int
	progress func(done, failed int)
	session  []Opt
}

// CommitterOpt is an option of NewCommitter.
type CommitterOpt interface{ committerOpt() }

type committerOpt struct{ set func(*committerConfig) }

func (committerOpt) committerOpt() {}

// MaxInFlight sets how many transactions are being ended at a time, overriding
// the default of 256. It bounds the memory that CommitSeq needs.
func MaxInFlight(n int) CommitterOpt {
	return committerOpt{func(c *committerConfig) { c.inFlight = n }}
}

// OnProgress sets a function that is called after each transaction with how
// many are done and how many of these are not committed. It is called by one
// goroutine at a time and holds the others up: it must be fast.
func OnProgress(fn func(done, failed int)) CommitterOpt {
	return committerOpt{func(c *committerConfig) { c.progress = fn }}
}

// SessionOpts gives options to the sessions that the committer resumes, such
// as [AllowResumeOldRules].
func SessionOpts(opts ...Opt) CommitterOpt {
	return committerOpt{func(c *committerConfig) { c.session = append(c.session, opts...) }}
}

// NewCommitter returns a committer that uses nc. It does no I/O, and has
// nothing to close.
func NewCommitter(nc *netclient.Client, opts ...CommitterOpt) (*Committer, error) {
	const op = "new committer"
	c := &Committer{nc: nc, cfg: committerConfig{inFlight: 256}}
	for _, o := range opts {
		co, ok := o.(committerOpt)
		if !ok {
			return nil, &Error{Op: op, Err: errors.New("nil option"), facts: isNeverSent}
		}
		co.set(&c.cfg)
	}
	var err error
	switch {
	case nc == nil:
		err = errors.New("the netclient is nil")
	case c.cfg.inFlight < 1:
		err = errors.New("MaxInFlight is below 1")
	default:
		_, err = newConfig(c.cfg.session)
	}
	if err != nil {
		return nil, &Error{Op: op, Err: err, facts: isNeverSent}
	}
	c.tc = link.Transport(nc)
	return c, nil
}

// CommitStatus is what became of one transaction.
type CommitStatus uint8

// The statuses.
const (
	// WasCommitted: it is committed, now or before; the coordinator answers
	// both alike.
	WasCommitted CommitStatus = iota + 1
	// WasAborted: it is certain that it is not and never will be committed.
	WasAborted
	// OutcomeUnknown: CommitResult.Err says why. Where it is ErrOutcomeLost
	// no further try can tell.
	OutcomeUnknown
	// NotTried: no end of it was sent.
	NotTried
)

// String returns the status's name, such as "committed".
func (s CommitStatus) String() string {
	if names := [...]string{"invalid", "committed", "aborted", "unknown", "not tried"}; int(s) < len(names) {
		return names[s]
	}
	return "invalid"
}

// CommitResult is what became of one transaction.
type CommitResult struct {
	Txn     PreparedTxn
	Status  CommitStatus
	Outcome Outcome
	Err     error // nil if committed
}

// CommitResults are the results of Commit, in the order of its transactions.
type CommitResults []CommitResult

// FirstErr returns the first error, or nil if every transaction is committed.
func (rs CommitResults) FirstErr() error {
	for _, r := range rs {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// Commit commits the transactions and returns their results in the same order.
// One that is listed twice is committed once and reported twice. When ctx ends
// the rest is NotTried.
func (c *Committer) Commit(ctx context.Context, txns []PreparedTxn) CommitResults {
	c.lookUp(ctx, txns)
	results := make(CommitResults, len(txns))
	first := make(map[PreparedTxn]int, len(txns))
	unique := func(yield func(int, PreparedTxn) bool) {
		for i, p := range txns {
			if _, dup := first[p]; dup {
				continue
			}
			first[p] = i
			if !yield(i, p) {
				return
			}
		}
	}
	for r := range c.run(ctx, unique, true) {
		results[r.index] = r.CommitResult
	}
	for i, p := range txns {
		results[i] = results[first[p]]
	}
	return results
}

// lookUp asks for all coordinators in a few requests. What it does not learn is
// looked up again, transaction by transaction, so that one id that nobody may
// see holds up no other.
func (c *Committer) lookUp(ctx context.Context, txns []PreparedTxn) {
	const bound = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	ids := make([]string, 0, len(txns))
	for _, p := range txns {
		if !p.Empty && p.TransactionalID != "" {
			ids = append(ids, p.TransactionalID)
		}
	}
	if len(ids) > 1 {
		_, _ = c.tc.Coordinators(ctx, ids)
	}
}

// CommitSeq commits the transactions of a sequence and yields results as they
// finish. At most MaxInFlight transactions are held at a time; the sequence is
// read as results are taken, by one goroutine. After ctx has ended what is
// left of it is NotTried. Leaving the loop early cuts short what is in flight;
// those results are lost.
func (c *Committer) CommitSeq(ctx context.Context, txns iter.Seq[PreparedTxn]) iter.Seq[CommitResult] {
	indexed := func(yield func(int, PreparedTxn) bool) {
		i := 0
		for p := range txns {
			if !yield(i, p) {
				return
			}
			i++
		}
	}
	return func(yield func(CommitResult) bool) {
		for r := range c.run(ctx, indexed, true) {
			if !yield(r.CommitResult) {
				return
			}
		}
	}
}

type indexedResult struct {
	CommitResult
	index int
}

// run ends the transactions of a sequence, commit or abort.
func (c *Committer) run(ctx context.Context, txns iter.Seq2[int, PreparedTxn], commit bool) iter.Seq[indexedResult] {
	return func(yield func(indexedResult) bool) {
		ctx, cancel := context.WithCancel(ctx)
		type job struct {
			index int
			txn   PreparedTxn
		}
		jobs := make(chan job)
		results := make(chan indexedResult)
		stopped, finished := make(chan struct{}), make(chan struct{})
		defer func() {
			close(stopped)
			cancel()
			<-finished
		}()

		go func() {
			defer close(finished)
			defer close(results)
			var workers sync.WaitGroup
			defer workers.Wait()
			defer close(jobs)
			started := 0
			for i, p := range txns {
				// Workers are started as there is work for them.
				if started < c.cfg.inFlight {
					started++
					workers.Go(func() {
						for j := range jobs {
							r := indexedResult{c.one(ctx, j.txn, commit), j.index}
							select {
							case results <- r:
							case <-stopped:
								return
							}
						}
					})
				}
				select {
				case jobs <- job{i, p}:
				case <-stopped:
					return
				}
			}
		}()

		done, failed := 0, 0
		for r := range results {
			done++
			if r.Status != WasCommitted {
				failed++
			}
			if c.cfg.progress != nil {
				c.cfg.progress(done, failed)
			}
			if !yield(r) {
				return
			}
		}
	}
}

// one ends one transaction.
func (c *Committer) one(ctx context.Context, p PreparedTxn, commit bool) CommitResult {
	r := CommitResult{Txn: p, Status: NotTried}
	if err := ctx.Err(); err != nil {
		r.Err = &Error{Op: "commit", State: StatePrepared, Err: context.Cause(ctx), facts: isNeverSent}
		return r
	}
	s, err := ResumePrepared(c.nc, p, c.cfg.session...)
	if err != nil {
		r.Err = err
		return r
	}
	defer s.Close(context.WithoutCancel(ctx))
	if commit {
		r.Err = s.Commit(ctx)
	} else {
		r.Err = s.Abort(ctx)
	}
	r.Outcome = s.known()
	switch v := r.Outcome.Verdict; {
	case v == Committed, v == Nothing && commit:
		r.Status = WasCommitted
	case v == Aborted, v == Nothing:
		r.Status = WasAborted
	case NeverSent(r.Err) && !IsOutcomeUnknown(r.Err):
		r.Status = NotTried
	default:
		r.Status = OutcomeUnknown
	}
	return r
}

// known returns what is known of the last transaction without asking.
func (s *Session) known() Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.txn == nil || !s.txn.ended {
		return Outcome{Verdict: Unknown, Evidence: Evidence{Source: "none"}}
	}
	return Outcome{s.txn.verdict, s.txn.evidence}
}
