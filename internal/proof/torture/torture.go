package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/netclient"
)

// Config says how long and how hard. Zero values get a default.
type Config struct {
	Duration  time.Duration // until the last transaction begins; 3 minutes
	KillEvery time.Duration // from one kill to the next at the earliest; 20 s
	// FaultEvery is the time from one fault of the network to the next; 200 ms.
	// Less than 0: none.
	FaultEvery time.Duration
	Sessions   int // 4
	// Pace is the least time from one transaction of a session to the next,
	// which bounds the memory of a long run; 10 ms.
	Pace time.Duration
	Seed uint64 // of everything that is chosen at random; 0 takes one from the clock
	// Log, if set, gets a line for each kill and each finding. It may be
	// called by several goroutines at once.
	Log func(format string, args ...any)
}

func (c Config) withDefaults() Config {
	if c.Duration <= 0 {
		c.Duration = 3 * time.Minute
	}
	if c.KillEvery <= 0 {
		c.KillEvery = 20 * time.Second
	}
	if c.FaultEvery == 0 {
		c.FaultEvery = 200 * time.Millisecond
	}
	if c.Sessions <= 0 {
		c.Sessions = 4
	}
	if c.Pace <= 0 {
		c.Pace = 10 * time.Millisecond
	}
	if c.Seed == 0 {
		c.Seed = uint64(time.Now().UnixNano())
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	return c
}

const (
	partitions = 6
	// grace is how long after the last kill everything must be resolved.
	grace = 2 * time.Minute
)

// run is one run of the torture.
type run struct {
	cfg   Config
	c     *kafkatest.Cluster
	net   *faultnet.Net // the sessions' way to the cluster
	topic string
	group string // prefix of the sessions' groups

	mu     sync.Mutex
	report Report
}

// Run tortures c, whose nodes it must be allowed to kill, and judges. The error
// wraps ErrViolated if a promise was broken; else it says why the run could not
// be finished. The report is valid in both cases. ctx ends the run early.
func Run(ctx context.Context, c *kafkatest.Cluster, cfg Config) (Report, error) {
	cfg = cfg.withDefaults()
	r := &run{cfg: cfg, c: c, net: faultnet.New(), report: Report{Seed: cfg.Seed, Duration: cfg.Duration}}
	name := fmt.Sprintf("torture-%x", rand.Uint64())
	r.topic, r.group = name, name+"-group-"
	if err := c.CreateTopic(ctx, r.topic, partitions); err != nil {
		return r.report, err
	}
	defer r.net.Close()
	// The sessions share one client; the committer, as elsewhere, has its own.
	shared, err := netclient.New(kgo.SeedBrokers(c.Seeds()...), kgo.Dialer(r.net.Dial))
	if err != nil {
		return r.report, err
	}
	defer shared.Close()
	elsewhere, err := netclient.New(kgo.SeedBrokers(c.Seeds()...), kgo.Dialer(r.net.Dial))
	if err != nil {
		return r.report, err
	}
	defer elsewhere.Close()

	until, stop := context.WithTimeout(ctx, cfg.Duration)
	defer stop()
	workers := make([]*worker, cfg.Sessions)
	var work errgroup.Group
	for i := range workers {
		w := newWorker(r, i, fmt.Sprintf("%s-%d", name, i), shared, elsewhere)
		workers[i] = w
		work.Go(func() error { return w.run(ctx, until) })
	}
	work.Go(func() error { return r.killer(ctx, until) })
	if cfg.FaultEvery > 0 {
		work.Go(func() error { return r.network(until) })
	}
	if err := work.Wait(); err != nil {
		return r.report, err
	}
	if err := r.judge(ctx, workers); err != nil {
		return r.report, err
	}
	if len(r.report.Violations) > 0 {
		return r.report, fmt.Errorf("%w:\n%s", ErrViolated, strings.Join(r.report.Violations, "\n"))
	}
	return r.report, nil
}

// ErrViolated is the cause of the error of a run in which a session was told
// what is not true.
var ErrViolated = errors.New("the sessions were told what is not true")

// killer kills a node after the other until the time is up, and leaves all of
// them running.
func (r *run) killer(ctx, until context.Context) error {
	rng := rand.New(rand.NewPCG(r.cfg.Seed, 0))
	order := rng.Perm(r.c.Spec().Nodes)
	next := time.After(r.cfg.KillEvery / 4)
	for i := 0; ; i++ {
		select {
		case <-until.Done():
			return nil
		case <-next:
		}
		next = time.After(r.cfg.KillEvery)
		node := order[i%len(order)] + 1
		down := time.Duration(rng.IntN(4000)) * time.Millisecond
		r.cfg.Log("kill node %d, down for %v", node, down)
		if err := r.c.Kill(node); err != nil {
			return err
		}
		r.count(func(p *Report) { p.Kills++ })
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(down):
		}
		begun := time.Now()
		if err := r.c.Restart(ctx, node); err != nil {
			return err
		}
		r.cfg.Log("node %d is back after %v", node, time.Since(begun).Round(time.Millisecond))
	}
}

func (r *run) count(change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.report)
}

// violatedf notes a broken promise.
func (r *run) violatedf(format string, args ...any) {
	v := fmt.Sprintf(format, args...)
	r.cfg.Log("VIOLATED: %s", v)
	r.count(func(p *Report) {
		const enough = 50
		if len(p.Violations) < enough {
			p.Violations = append(p.Violations, v)
		}
	})
}

// judge reads what is visible, by kgo and by Java, and compares.
func (r *run) judge(ctx context.Context, workers []*worker) error {
	ctx, cancel := context.WithTimeout(ctx, grace+time.Duration(r.report.Produced)*time.Millisecond)
	defer cancel()
	recs, err := kafkatest.ReadCommitted(ctx, r.c, r.topic)
	if err != nil {
		return err
	}
	r.report.Visible = len(recs)
	ledgers := make([]*ledger, len(workers))
	for i, w := range workers {
		ledgers[i] = &w.ledger
	}
	for _, v := range compare(ledgers, recs) {
		r.violatedf("%s", v)
	}
	for _, w := range workers {
		got, err := committedOffset(ctx, r.c, w.group, r.topic)
		if err != nil {
			return err
		}
		if may := w.ledger.offsets(); !slices.Contains(may, got) {
			r.violatedf("group %s has committed %d, which is none of %v", w.group, got, may)
		}
	}
	lines, err := kafkatest.ConsoleConsume(ctx, r.c, r.topic)
	if err != nil {
		return err
	}
	values := make([]string, len(recs))
	for i, rec := range recs {
		values[i] = string(rec.Value)
	}
	slices.Sort(values)
	slices.Sort(lines)
	if !slices.Equal(values, lines) {
		r.violatedf("Java's console consumer reads %d records that are not the %d that kgo reads", len(lines), len(values))
	}
	return nil
}
