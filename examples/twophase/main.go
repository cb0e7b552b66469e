// Command twophase commits transfers in Kafka and in a journal, both or neither,
// although the process that does it is killed between the two phases. The
// journal is a file and stands for a database: its commit decides, and it stores
// the identity of Kafka's transaction together with the data.
//
//	go run ./examples/twophase                          on a cluster inside the process
//	go run ./examples/twophase -brokers host:9092,...   on yours
//
// What matters is in bank.go. It runs in processes of its own, which this one
// starts and which kill themselves.
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
	"slices"
	"strconv"

	"github.com/ktxn/ktxn/internal/examplekit"
)

// moment is when the bank's process is killed.
type moment string

const (
	never     moment = "never"
	undecided moment = "undecided" // prepared in Kafka, not in the journal: must be aborted
	decided   moment = "decided"   // in the journal, not committed in Kafka: must be committed
)

type config struct {
	brokers  string
	twoPhase bool
	keep     bool
	topic    string // what follows is passed to the bank's processes
	id       string
	journal  string
	upTo     int
	crash    moment
}

// result is what the run has come to.
type result struct {
	journal []int // transfers in the journal
	visible []int // transfers in the topic, for read_committed readers
	written int   // records in the topic
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "twophase:", err)
		os.Exit(2)
	}
}

func command(ctx context.Context, args []string, out io.Writer) error {
	bank := len(args) > 0 && args[0] == "bank"
	if bank {
		args = args[1:]
	}
	var cfg config
	fs := flag.NewFlagSet("twophase", flag.ContinueOnError)
	fs.StringVar(&cfg.brokers, "brokers", "", "host:port,... of a Kafka; without it one is started inside the process")
	fs.BoolVar(&cfg.twoPhase, "2pc", false, "ask for transactions without a time limit (KIP-939); the brokers must allow it")
	fs.BoolVar(&cfg.keep, "keep", false, "leave the topic on -brokers")
	fs.StringVar(&cfg.topic, "topic", "", "of the bank")
	fs.StringVar(&cfg.id, "id", "", "of the bank: its transactional id")
	fs.StringVar(&cfg.journal, "journal", "", "of the bank")
	fs.IntVar(&cfg.upTo, "upto", 0, "of the bank: the last transfer to make")
	fs.Func("crash", "of the bank: when to die in the last transfer", func(s string) error {
		cfg.crash = moment(s)
		return nil
	})
	if err := fs.Parse(args); err != nil {
		return err
	}
	if bank {
		return work(ctx, cfg, out)
	}
	_, err := run(ctx, cfg, out)
	return err
}

// run starts the bank three times. An error means that the journal and the
// topic do not agree.
func run(ctx context.Context, cfg config, out io.Writer) (r result, err error) {
	cluster, err := examplekit.Open(ctx, cfg.brokers)
	if err != nil {
		return r, err
	}
	defer cluster.Close()
	dir, err := os.MkdirTemp("", "twophase")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	cfg.id = examplekit.Unique("bank")
	cfg.topic, cfg.journal = cfg.id+"-transfers", filepath.Join(dir, "journal")
	if err := cluster.CreateTopics(ctx, 1, nil, cfg.topic); err != nil {
		return r, err
	}
	if !cfg.keep {
		defer func() { err = errors.Join(err, cluster.DeleteTopics(context.WithoutCancel(ctx), cfg.topic)) }()
	}
	for _, life := range []struct {
		upTo  int
		crash moment
	}{{3, decided}, {6, undecided}, {7, never}} {
		killed, err := examplekit.Child(ctx, out, "bank", "-brokers", cluster.Brokers(), "-topic", cfg.topic,
			"-id", cfg.id, "-journal", cfg.journal, "-2pc="+strconv.FormatBool(cfg.twoPhase),
			"-upto", strconv.Itoa(life.upTo), "-crash", string(life.crash))
		if err != nil {
			return r, err
		}
		if killed != (life.crash != never) {
			return r, fmt.Errorf("the bank's process was to be killed %s: it was killed: %t", life.crash, killed)
		}
		visible, err := cluster.Visible(ctx, cfg.topic)
		if err != nil {
			return r, err
		}
		fmt.Fprintf(out, "  its process is gone: %d transfers visible in Kafka\n", len(visible))
	}
	return judge(ctx, cluster, cfg, out)
}

func judge(ctx context.Context, cluster *examplekit.Cluster, cfg config, out io.Writer) (r result, err error) {
	entries, err := readJournal(cfg.journal)
	if err != nil {
		return r, err
	}
	for _, e := range entries {
		r.journal = append(r.journal, e.Transfer)
	}
	visible, err := cluster.ReadCommitted(ctx, cfg.topic)
	if err != nil {
		return r, err
	}
	for _, rec := range visible {
		n, err := strconv.Atoi(string(rec.Value))
		if err != nil {
			return r, err
		}
		r.visible = append(r.visible, n)
	}
	written, err := cluster.ReadUncommitted(ctx, cfg.topic)
	if err != nil {
		return r, err
	}
	r.written = len(written)
	if !slices.Equal(r.journal, r.visible) {
		return r, fmt.Errorf("the journal has the transfers %v, Kafka has %v", r.journal, r.visible)
	}
	fmt.Fprintf(out, "proof: the journal and Kafka have the same transfers, %v; %d of the %d records in the topic was aborted\n",
		r.journal, r.written-len(r.visible), r.written)
	return r, nil
}
