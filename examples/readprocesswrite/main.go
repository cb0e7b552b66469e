// Command readprocesswrite counts words exactly once: a consumer group reads
// lines, and each batch of lines becomes one transaction of word counts and
// consumed offsets. On the way one batch fails and one worker is killed in
// mid-transaction; at the end the counts are proved against the text.
//
//	go run ./examples/readprocesswrite                          on a cluster inside the process
//	go run ./examples/readprocesswrite -brokers host:9092,...   on yours
//	go run ./examples/readprocesswrite -input FILE              your text; - is stdin
//
// What matters is in worker.go.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/ktxn/ktxn/internal/examplekit"
)

//go:embed raven.txt
var raven string // by Edgar Allan Poe, 1845

type config struct {
	brokers string
	input   string // a file's name, "-" for stdin, or empty for the poem
	workers int
	batch   int  // lines in a transaction at most
	fail    bool // one batch fails
	kill    bool // one worker is killed
	keep    bool // leave the topics
}

func main() {
	var cfg config
	flag.StringVar(&cfg.brokers, "brokers", "", "host:port,... of a Kafka; without it one is started inside the process")
	flag.StringVar(&cfg.input, "input", "", "file of text, - for stdin; without it a poem")
	flag.IntVar(&cfg.workers, "workers", 3, "members of the consumer group")
	flag.IntVar(&cfg.batch, "batch", 3, "lines in a transaction at most")
	flag.BoolVar(&cfg.fail, "fail", true, "let one batch fail")
	flag.BoolVar(&cfg.kill, "kill", true, "kill one worker in mid-transaction")
	flag.BoolVar(&cfg.keep, "keep", false, "leave the topics on -brokers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	_, err := run(ctx, cfg, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "readprocesswrite:", err)
		os.Exit(2)
	}
}

// app is what the workers of one run share.
type app struct {
	cluster  *examplekit.Cluster
	name     string // begins the transactional ids, and is the group
	in, out  string // topics
	batch    int
	progress *progress
	say      func(format string, args ...any)
}

// run reads the text, has it counted, and proves the counts. An error means
// that the result is not exact, or that it could not be found out.
func run(ctx context.Context, cfg config, out io.Writer) (proof, error) {
	lines, err := readLines(cfg.input)
	if err != nil {
		return proof{}, err
	}
	cluster, err := examplekit.Open(ctx, cfg.brokers)
	if err != nil {
		return proof{}, err
	}
	defer cluster.Close()
	name := examplekit.Unique("wordcount")
	a := &app{
		cluster: cluster, name: name, in: name + "-lines", out: name + "-counts", batch: cfg.batch,
		progress: newProgress(len(lines), cfg.fail, cfg.kill),
		say:      func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) },
	}
	if err := cluster.CreateTopics(ctx, 6, nil, a.in, a.out); err != nil {
		return proof{}, err
	}
	if !cfg.keep {
		defer func() {
			if err := cluster.DeleteTopics(context.WithoutCancel(ctx), a.in, a.out); err != nil {
				a.say("the topics %s and %s are left: %v", a.in, a.out, err)
			}
		}()
	}
	if err := a.load(ctx, lines); err != nil {
		return proof{}, fmt.Errorf("writing the input: %w", err)
	}
	a.say("input     %d lines in the topic %s", len(lines), a.in)
	if err := a.work(ctx, cfg.workers); err != nil {
		return proof{}, err
	}
	return a.prove(ctx, lines)
}

// load writes the lines, in turn to each partition.
func (a *app) load(ctx context.Context, lines []string) error {
	cl, err := kgo.NewClient(append(a.cluster.Opts(),
		kgo.DefaultProduceTopic(a.in), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	records := make([]*kgo.Record, len(lines))
	for i, line := range lines {
		records[i] = kgo.StringRecord(line)
	}
	return cl.ProduceSync(ctx, records...).FirstErr()
}

// work runs the workers until every line is committed. The place of one that is
// killed is taken by a successor, as whatever restarts a process would do it.
func (a *app) work(ctx context.Context, workers int) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range workers {
		group.Go(func() error {
			for {
				w := &worker{app: a, number: i}
				err := w.run(ctx)
				w.bury()
				if !errors.Is(err, errKilled) {
					return err
				}
			}
		})
	}
	return group.Wait()
}

func readLines(input string) ([]string, error) {
	var r io.Reader = strings.NewReader(raven)
	switch input {
	case "":
	case "-":
		r = os.Stdin
	default:
		f, err := os.Open(input)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	var lines []string
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		if line := strings.TrimSpace(scan.Text()); line != "" {
			lines = append(lines, line)
		}
	}
	if err := scan.Err(); err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, errors.New("the input has no line")
	}
	return lines, nil
}
