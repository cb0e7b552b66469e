// Command committer ends transactions that another process has prepared, as
// Flink's committer does for its writers: one process writes, stores what
// identifies each transaction in a file, and is killed; another one commits them
// all, with neither a producer nor a takeover.
//
//	go run ./examples/committer                          on a cluster inside the process
//	go run ./examples/committer -brokers host:9092,...   on yours
//
// What matters is in writer.go and commit.go. Each runs in a process of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"

	"github.com/ktxn/ktxn/internal/examplekit"
)

// perTxn is how many records a writer puts into a transaction.
const perTxn = 3

type config struct {
	brokers string
	txns    int
	keep    bool
	topic   string // what follows is passed to the other processes
	prefix  string // of the transactional ids
	file    string
}

// result is what the run has come to.
type result struct {
	before  int // records visible when the writer is dead
	after   int // and when the committer is done
	written int // in all
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "committer:", err)
		os.Exit(2)
	}
}

func command(ctx context.Context, args []string, out io.Writer) error {
	name := ""
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	var cfg config
	fs := flag.NewFlagSet("committer", flag.ContinueOnError)
	fs.StringVar(&cfg.brokers, "brokers", "", "host:port,... of a Kafka; without it one is started inside the process")
	fs.IntVar(&cfg.txns, "n", 200, "transactions")
	fs.BoolVar(&cfg.keep, "keep", false, "leave the topic on -brokers")
	fs.StringVar(&cfg.topic, "topic", "", "of the processes that this one starts")
	fs.StringVar(&cfg.prefix, "prefix", "", "of the processes that this one starts")
	fs.StringVar(&cfg.file, "file", "", "of the processes that this one starts")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch name {
	case "":
		_, err := run(ctx, cfg, out)
		return err
	case "write":
		return write(ctx, cfg, out)
	case "commit":
		return commit(ctx, cfg, out)
	}
	return fmt.Errorf("no such command: %s", name)
}

// run starts the two processes one after the other and looks at the topic in
// between. An error means that the outcome is not what was promised.
func run(ctx context.Context, cfg config, out io.Writer) (r result, err error) {
	cluster, err := examplekit.Open(ctx, cfg.brokers)
	if err != nil {
		return r, err
	}
	defer cluster.Close()
	dir, err := os.MkdirTemp("", "committer")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	cfg.prefix = examplekit.Unique("sink")
	cfg.topic, cfg.file = cfg.prefix+"-out", filepath.Join(dir, "prepared")
	if err := cluster.CreateTopics(ctx, 4, nil, cfg.topic); err != nil {
		return r, err
	}
	if !cfg.keep {
		defer func() { err = errors.Join(err, cluster.DeleteTopics(context.WithoutCancel(ctx), cfg.topic)) }()
	}
	process := func(name string) (killed bool, err error) {
		return examplekit.Child(ctx, out, name, "-brokers", cluster.Brokers(), "-n", strconv.Itoa(cfg.txns),
			"-topic", cfg.topic, "-prefix", cfg.prefix, "-file", cfg.file)
	}

	killed, err := process("write")
	if err != nil {
		return r, err
	}
	if !killed {
		return r, errors.New("the writer has ended instead of being killed")
	}
	visible, err := cluster.Visible(ctx, cfg.topic)
	if err != nil {
		return r, err
	}
	r.before = len(visible)
	fmt.Fprintf(out, "the writer is dead: %d records visible to read_committed readers\n", r.before)

	if killed, err = process("commit"); err != nil {
		return r, err
	}
	if killed {
		return r, errors.New("the committer was killed")
	}
	if visible, err = cluster.ReadCommitted(ctx, cfg.topic); err != nil {
		return r, err
	}
	written, err := cluster.ReadUncommitted(ctx, cfg.topic)
	if err != nil {
		return r, err
	}
	r.after, r.written = len(visible), len(written)
	seen := make(map[string]int)
	for _, rec := range visible {
		seen[string(rec.Value)]++
	}
	for i := range cfg.txns {
		for j := range perTxn {
			if n := seen[valueOf(i, j)]; n != 1 {
				return r, fmt.Errorf("record %d of transaction %d is visible %d times", j, i, n)
			}
		}
	}
	if r.before != 0 || r.after != cfg.txns*perTxn {
		return r, fmt.Errorf("%d and %d records were visible, want 0 and %d", r.before, r.after, cfg.txns*perTxn)
	}
	fmt.Fprintf(out, "proof: each of the %d records of %d transactions is visible once; the %d of the transaction that was never stored are not\n",
		r.after, cfg.txns, r.written-r.after)
	return r, nil
}

func valueOf(txn, record int) string { return fmt.Sprintf("%d/%d", txn, record) }
