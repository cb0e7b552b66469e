// Command streamstask is a stream processing task with a state store, as Kafka
// Streams runs it: words in, a count for each word in the store, every change of
// it in a changelog topic, and offsets, all in one transaction for many records.
// Whether a transaction is open is asked of the session and kept nowhere else.
//
//	go run ./examples/streamstask                          on a cluster inside the process
//	go run ./examples/streamstask -brokers host:9092,...   on yours
//
// On the way processing fails once, and the task is killed once and started
// again. What matters is in task.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/examplekit"
)

type config struct {
	brokers string
	words   int
	every   int
	keep    bool
}

// result is what the run has come to.
type result struct {
	failures, kills int
	written         int // changes of the store in its changelog
	visible         int
	counts          map[string]int
}

func main() {
	var cfg config
	flag.StringVar(&cfg.brokers, "brokers", "", "host:port,... of a Kafka; without it one is started inside the process")
	flag.IntVar(&cfg.words, "words", 1000, "words of input")
	flag.IntVar(&cfg.every, "every", 40, "records in a transaction")
	flag.BoolVar(&cfg.keep, "keep", false, "leave the topics on -brokers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	_, err := run(ctx, cfg, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "streamstask:", err)
		os.Exit(2)
	}
}

// run lets the task count the words. An error means that the store does not
// have the right counts.
func run(ctx context.Context, cfg config, out io.Writer) (r result, err error) {
	cluster, err := examplekit.Open(ctx, cfg.brokers)
	if err != nil {
		return r, err
	}
	defer cluster.Close()
	app := examplekit.Unique("counts")
	input, changelog := app+"-words", app+"-store-changelog"
	compact := "compact"
	err = errors.Join(
		cluster.CreateTopics(ctx, 1, nil, input),
		cluster.CreateTopics(ctx, 1, map[string]*string{"cleanup.policy": &compact}, changelog),
	)
	if err != nil {
		return r, err
	}
	if !cfg.keep {
		defer func() { err = errors.Join(err, cluster.DeleteTopics(context.WithoutCancel(ctx), input, changelog)) }()
	}
	want, err := load(ctx, cluster, input, cfg.words)
	if err != nil {
		return r, err
	}

	faults := &faults{failAt: int64(cfg.words / 3), dieAt: int64(cfg.words * 2 / 3)}
	for {
		t := &task{
			cluster: cluster, app: app, input: input, changelog: changelog,
			end: int64(cfg.words), every: cfg.every, faults: faults,
			say: func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) },
		}
		err := t.run(ctx)
		if errors.Is(err, errKilled) {
			continue // as whatever restarts a process would
		}
		if err != nil {
			return r, err
		}
		break
	}
	r.failures, r.kills = faults.failures, faults.kills

	visible, err := cluster.ReadCommitted(ctx, changelog)
	if err != nil {
		return r, err
	}
	written, err := cluster.ReadUncommitted(ctx, changelog)
	if err != nil {
		return r, err
	}
	r.visible, r.written = len(visible), len(written)
	if r.counts, err = replay(visible); err != nil {
		return r, err
	}
	if !maps.Equal(r.counts, want) {
		return r, fmt.Errorf("the changelog's counts are %v, those of the input %v", r.counts, want)
	}
	if r.visible != cfg.words {
		return r, fmt.Errorf("%d words made %d committed changes", cfg.words, r.visible)
	}
	fmt.Fprintf(out, "proof: the store's counts are those of the %d words of input; %d changes were written, %d of them aborted\n",
		cfg.words, r.written, r.written-r.visible)
	return r, nil
}

// load writes the input and returns what is to be counted.
func load(ctx context.Context, cluster *examplekit.Cluster, topic string, n int) (map[string]int, error) {
	vocabulary := []string{"session", "begin", "commit", "abort", "epoch", "fence", "marker"}
	cl, err := kgo.NewClient(append(cluster.Opts(), kgo.DefaultProduceTopic(topic))...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	want := make(map[string]int)
	records := make([]*kgo.Record, n)
	for i := range records {
		word := vocabulary[(i*i+i/3)%len(vocabulary)]
		want[word]++
		records[i] = kgo.StringRecord(word)
	}
	return want, cl.ProduceSync(ctx, records...).FirstErr()
}
