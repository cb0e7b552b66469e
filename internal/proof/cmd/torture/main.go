// Command torture runs transactions on a Kafka of three nodes while the nodes
// are killed one after the other and the network breaks, and then holds what the
// sessions were told against what kgo and Java's console consumer read. See
// package torture.
//
//	go run ./internal/proof/cmd/torture -duration 3m
//
// It exits with 1 if a promise was broken. Java 17 and Maven are needed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/internal/proof/torture"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func command(ctx context.Context, args []string) int {
	var cfg torture.Config
	fs := flag.NewFlagSet("torture", flag.ContinueOnError)
	fs.DurationVar(&cfg.Duration, "duration", 3*time.Minute, "until the last transaction begins")
	fs.DurationVar(&cfg.KillEvery, "kill", 20*time.Second, "from one kill to the next")
	fs.DurationVar(&cfg.FaultEvery, "faults", 200*time.Millisecond, "from one fault of the network to the next; -1s: none")
	fs.IntVar(&cfg.Sessions, "sessions", 4, "sessions at work")
	fs.DurationVar(&cfg.Pace, "pace", 10*time.Millisecond, "least time from one transaction of a session to the next")
	fs.Uint64Var(&cfg.Seed, "seed", 0, "of what is chosen at random; 0: any")
	oldRules := fs.Bool("old-rules", false, "with transaction.version 0")
	quiet := fs.Bool("quiet", false, "print the summary only")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	begun := time.Now()
	if !*quiet {
		cfg.Log = func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
		}
	}
	spec := kafkatest.ThreeNodes()
	if *oldRules {
		spec.TransactionVersion = 0
	}
	c, err := kafkatest.Start(ctx, spec)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer c.Close()
	report, err := torture.Run(ctx, c, cfg)
	fmt.Print(report)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
