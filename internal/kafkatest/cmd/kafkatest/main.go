// Command kafkatest runs real Kafka brokers for tests and for people.
//
//	kafkatest exec -- CMD ARGS   runs CMD with clusters shared by all its processes
//	kafkatest serve              shares clusters until its input or the process ends
//	kafkatest run [flags]        runs one cluster until Ctrl-C
//
// exec sets KTXN_KAFKATEST for CMD and exits with CMD's code:
//
//	go run ./internal/kafkatest/cmd/kafkatest exec -- go test ./...
//
// The brokers need Java 17 and Maven. See package kafkatest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

const usage = `usage:
  kafkatest exec -- CMD ARGS
  kafkatest serve
  kafkatest run [flags]    (kafkatest run -h lists them)
`

// codes of the shell: misuse, and a failure of our own rather than of CMD.
const (
	exitUsage  = 2
	exitFailed = 125
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func command(ctx context.Context, args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	var err error
	code := 0
	switch args[0] {
	case "exec":
		args = args[1:]
		if len(args) > 0 && args[0] == "--" {
			args = args[1:]
		}
		if len(args) == 0 {
			fmt.Fprint(os.Stderr, usage)
			return exitUsage
		}
		code, err = execute(ctx, args)
	case "serve":
		err = serve(ctx)
	case "run":
		err = runCluster(ctx, args[1:])
	default:
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	return code
}

// serve prints the address and shares clusters until the input ends, so that no
// server outlives the one who started it.
func serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := kafkatest.Listen()
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Printf("KTXN_KAFKATEST=%s\n", s.Addr())
	return s.Serve(ctx)
}

// execute runs a command beside a server and answers its exit code.
func execute(ctx context.Context, args []string) (int, error) {
	if err := kafkatest.Available(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%v: tests on a real broker will be skipped\n", err)
	}
	s, err := kafkatest.Listen()
	if err != nil {
		return 0, err
	}
	serving, end := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(serving) }()

	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "KTXN_KAFKATEST="+s.Addr())
	// Ctrl-C reaches the command by the terminal; a signal to this process alone
	// is passed on. The clusters stay until the command has ended.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err = cmd.Run()
	end()
	if serr := <-served; serr != nil {
		return 0, serr
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode(), nil
	case err != nil:
		return 0, fmt.Errorf("kafkatest: %s: %w", strings.Join(args, " "), err)
	}
	return 0, nil
}

// runCluster runs a cluster for a person.
func runCluster(ctx context.Context, args []string) error {
	spec := kafkatest.Latest()
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	fs.StringVar(&spec.Version, "version", spec.Version, "release of Apache Kafka")
	fs.IntVar(&spec.Nodes, "nodes", spec.Nodes, "1 or 3")
	fs.IntVar(&spec.TransactionVersion, "transaction-version", spec.TransactionVersion, "finalized transaction.version, -1 for the broker's default")
	fs.IntVar(&spec.ShareVersion, "share-version", spec.ShareVersion, "finalized share.version, -1 for the broker's default")
	fs.BoolVar(&spec.UnstableAPIs, "unstable", false, "expose API versions that are not settled")
	fs.BoolVar(&spec.Secure, "secure", false, "SASL_SSL and ACLs; prints a Java client's properties")
	fs.BoolVar(&spec.TwoPhaseCommit, "2pc", false, "allow transactions without a timeout")
	fs.StringVar(&spec.JVM, "jvm", "", "flags of each node's Java instead of those that start fast")
	fs.StringVar(&spec.Overrides, "set", "", "lines for server.properties")
	if err := fs.Parse(args); err != nil {
		return err
	}
	c, err := kafkatest.Start(ctx, spec)
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Fprintf(os.Stderr, "%s runs; Ctrl-C ends it\n", c.Spec())
	if spec.Secure {
		fmt.Print(c.JavaProperties(kafkatest.SuperUser))
	} else {
		fmt.Println(strings.Join(c.Seeds(), ","))
	}
	<-ctx.Done()
	return nil
}
