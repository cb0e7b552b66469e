// Command sourcetask copies a source into a topic exactly once. Where it is in
// the source is a record too, written to a second topic in the same transaction
// as the data: so a task that takes a killed one's place goes on exactly where
// the last commit ended. It is what Kafka Connect's source tasks do.
//
//	go run ./examples/sourcetask                          on a cluster inside the process
//	go run ./examples/sourcetask -brokers host:9092,...   on yours
//
// What matters is in task.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/ktxn/ktxn/internal/examplekit"
)

type config struct {
	brokers string
	lines   int
	batch   int
	keep    bool
}

// result is what the run has come to.
type result struct {
	resumed int // the line at which the second task went on
	killed  int // lines of the transaction that was open when the first was killed
	written int // lines in the topic, those included
	visible int
}

func main() {
	var cfg config
	flag.StringVar(&cfg.brokers, "brokers", "", "host:port,... of a Kafka; without it one is started inside the process")
	flag.IntVar(&cfg.lines, "lines", 500, "lines of the source")
	flag.IntVar(&cfg.batch, "batch", 20, "lines in a transaction")
	flag.BoolVar(&cfg.keep, "keep", false, "leave the topics on -brokers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	_, err := run(ctx, cfg, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sourcetask:", err)
		os.Exit(2)
	}
}

// run copies the source with two tasks, the first of which is killed half-way.
// An error means that the topic is not the source.
func run(ctx context.Context, cfg config, out io.Writer) (r result, err error) {
	cluster, err := examplekit.Open(ctx, cfg.brokers)
	if err != nil {
		return r, err
	}
	defer cluster.Close()
	name := examplekit.Unique("source")
	data, offsets := name+"-data", name+"-offsets"
	compact := "compact"
	err = errors.Join(
		cluster.CreateTopics(ctx, 1, nil, data),
		cluster.CreateTopics(ctx, 1, map[string]*string{"cleanup.policy": &compact}, offsets),
	)
	if err != nil {
		return r, err
	}
	if !cfg.keep {
		defer func() { err = errors.Join(err, cluster.DeleteTopics(context.WithoutCancel(ctx), data, offsets)) }()
	}

	source := readings(cfg.lines)
	for _, dieAfter := range []int{cfg.lines / 2, cfg.lines + 1} {
		t := &task{
			cluster: cluster, id: name + "-0", source: source, batch: cfg.batch,
			data: data, offsets: offsets, dieAfter: dieAfter,
		}
		from, to, err := t.run(ctx)
		switch {
		case errors.Is(err, errKilled):
			r.killed = t.open
			fmt.Fprintf(out, "task 1 copied the lines from %d up to %d, and was killed with %d more written and not committed\n", from, to, t.open)
		case err != nil:
			return r, err
		default:
			r.resumed = from
			fmt.Fprintf(out, "task 2 resumed at line %d and copied those up to %d\n", from, to)
		}
	}

	visible, err := cluster.ReadCommitted(ctx, data)
	if err != nil {
		return r, err
	}
	written, err := cluster.ReadUncommitted(ctx, data)
	if err != nil {
		return r, err
	}
	r.visible, r.written = len(visible), len(written)
	for i, rec := range visible {
		if i >= len(source) || string(rec.Value) != source[i] {
			return r, fmt.Errorf("line %d of the topic is %q, which is not the source's", i, rec.Value)
		}
	}
	if r.visible != len(source) {
		return r, fmt.Errorf("the topic has %d lines, the source %d", r.visible, len(source))
	}
	fmt.Fprintf(out, "proof: the topic's %d committed lines are the source's, in order; %d of %d were written and aborted\n",
		r.visible, r.written-r.visible, r.written)
	return r, nil
}

// readings is a source: lines that come in an order and can be read again.
func readings(n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf("reading %d: %d.%d degrees", i, 15+i%9, i*7%10)
	}
	return lines
}
