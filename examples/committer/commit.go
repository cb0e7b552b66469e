package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/txnsession"
)

// commit is the committer's process. All it has is the file.
func commit(ctx context.Context, cfg config, out io.Writer) error {
	prepared, err := stored(cfg.file)
	if err != nil {
		return err
	}
	nc, err := netclient.New(kgo.SeedBrokers(strings.Split(cfg.brokers, ",")...))
	if err != nil {
		return err
	}
	defer nc.Close()
	committer, err := txnsession.NewCommitter(nc)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	began := time.Now()
	results := committer.Commit(ctx, prepared)
	took := time.Since(began)
	counts := make(map[txnsession.CommitStatus]int)
	for _, r := range results {
		counts[r.Status]++
	}
	fmt.Fprintf(out, "committer %d: %d transactions from the file: %v, in %v\n", os.Getpid(), len(prepared), counts, took.Round(time.Millisecond))
	if err := results.FirstErr(); err != nil {
		// Unknown or not tried: run it again, a commit that was done before
		// is a success. Aborted: the data is lost, somebody must know.
		return err
	}

	// What was prepared and never stored belongs to no checkpoint.
	left, err := committer.Leftovers(ctx, cfg.prefix+"-")
	if err != nil {
		return err
	}
	aborted := committer.AbortLeftovers(ctx, left)
	fmt.Fprintf(out, "committer %d: aborted what nobody stored: %d\n", os.Getpid(), len(left))
	return aborted.FirstErr()
}

func stored(name string) ([]txnsession.PreparedTxn, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []txnsession.PreparedTxn
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		p, err := txnsession.ParsePreparedTxn(scan.Text())
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, scan.Err()
}
