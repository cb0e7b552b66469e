package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/ktxn/ktxn/internal/examplekit"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

// write is the writers' process. It prepares the transactions, stores them as a
// checkpoint would, opens one more that is never stored, and is killed.
func write(ctx context.Context, cfg config, out io.Writer) error {
	nc, err := netclient.New(kgo.SeedBrokers(strings.Split(cfg.brokers, ",")...))
	if err != nil {
		return err
	}
	defer nc.Close()

	prepared := make([]txnsession.PreparedTxn, cfg.txns)
	writers, wctx := errgroup.WithContext(ctx)
	writers.SetLimit(32)
	for i := range prepared {
		writers.Go(func() error {
			s, err := open(wctx, nc, cfg, i)
			if err != nil {
				return err
			}
			// Everything is acknowledged when Prepare returns. Nothing tells
			// the coordinator: it only waits for an end, from anybody who
			// knows this transaction.
			prepared[i], err = s.Prepare(wctx)
			return err
		})
	}
	if err := writers.Wait(); err != nil {
		return err
	}
	if err := store(cfg.file, prepared); err != nil {
		return err
	}
	s, err := open(ctx, nc, cfg, cfg.txns)
	if err != nil {
		return err
	}
	if _, err := s.Prepare(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "writer %d: %d transactions prepared and stored, one more prepared; killed\n", os.Getpid(), cfg.txns)
	examplekit.Die()
	return nil
}

// open begins the i-th transaction and writes its records.
func open(ctx context.Context, nc *netclient.Client, cfg config, i int) (*txnsession.Session, error) {
	// The transactions must last until a committer comes. Two-phase commit
	// (KIP-939) would take the limit away.
	s, err := txnsession.New(nc, fmt.Sprintf("%s-%d", cfg.prefix, i), txnsession.TransactionTimeout(10*time.Minute))
	if err != nil {
		return nil, err
	}
	p, err := producer.New(s, kgo.DefaultProduceTopic(cfg.topic))
	if err != nil {
		return nil, err
	}
	if err := s.Initialize(ctx); err != nil {
		return nil, err
	}
	if err := s.Begin(ctx); err != nil {
		return nil, err
	}
	for j := range perTxn {
		// Prepare would tell of a record that could not be written.
		p.Produce(ctx, kgo.StringRecord(valueOf(i, j)), nil)
	}
	return s, nil
}

// store writes a line for each transaction and returns once they are on disk.
func store(name string, prepared []txnsession.PreparedTxn) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	for _, p := range prepared {
		if _, err := fmt.Fprintln(f, p); err != nil {
			_ = f.Close()
			return err
		}
	}
	if err := f.Sync(); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
