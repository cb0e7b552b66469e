package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/examplekit"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

// bank makes transfers. Its process may die at any moment.
type bank struct {
	config
	nc       *netclient.Client
	session  *txnsession.Session
	producer *producer.Producer
	say      func(format string, args ...any)
}

// work is the bank's process: it recovers, and makes the transfers that are
// missing up to cfg.upTo.
func work(ctx context.Context, cfg config, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	b := &bank{config: cfg, say: func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }}
	if b.nc, err = netclient.New(kgo.SeedBrokers(strings.Split(cfg.brokers, ",")...)); err != nil {
		return err
	}
	defer b.nc.Close()
	journal, err := readJournal(cfg.journal)
	if err != nil {
		return err
	}
	last := 0
	if len(journal) > 0 {
		last = journal[len(journal)-1].Transfer
		if err := b.finish(ctx, journal[len(journal)-1]); err != nil {
			return err
		}
	}
	if err := b.start(ctx); err != nil {
		return err
	}
	for n := last + 1; n <= cfg.upTo; n++ {
		if err := b.transfer(ctx, n); err != nil {
			return fmt.Errorf("transfer %d: %w", n, err)
		}
	}
	return errors.Join(b.producer.Close(ctx), b.session.Close(ctx))
}

// finish completes the transfer that was decided last. It may have been
// committed before: that is a success too.
func (b *bank) finish(ctx context.Context, e entry) error {
	s, err := txnsession.ResumePrepared(b.nc, e.Txn)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	err = s.Commit(ctx)
	for txnsession.IsOutcomeUnknown(err) && ctx.Err() == nil {
		err = s.Commit(ctx)
	}
	if err != nil {
		// IsNotCommitted here means that the time limit of the transaction
		// ran out before the recovery: the journal has a transfer that Kafka
		// will never have. That is why KIP-939 takes the limit away (-2pc).
		return fmt.Errorf("transfer %d is decided and cannot be committed: %w", e.Transfer, err)
	}
	out, err := s.Outcome(ctx)
	if err != nil {
		return err
	}
	b.say("bank: recovering transfer %d, the last in the journal: %s", e.Transfer, out.Verdict)
	return nil
}

// start takes the transactional id over. This aborts what an earlier process
// has prepared and never decided, so it must come after finish. (On a cluster
// with netclient.KeepPrepared one InitializeKeepPrepared, then Complete with
// the last entry, does the work of both.)
func (b *bank) start(ctx context.Context) (err error) {
	limit := txnsession.TransactionTimeout(10 * time.Minute)
	if b.twoPhase {
		limit = txnsession.TwoPhaseCommit()
	}
	if b.session, err = txnsession.New(b.nc, b.id, limit); err != nil {
		return err
	}
	if b.producer, err = producer.New(b.session, kgo.DefaultProduceTopic(b.topic)); err != nil {
		return err
	}
	return b.session.Initialize(ctx)
}

// transfer makes one transfer in both places.
func (b *bank) transfer(ctx context.Context, n int) error {
	if err := b.session.Begin(ctx); err != nil {
		return err
	}
	b.producer.Produce(ctx, kgo.StringRecord(strconv.Itoa(n)), nil)

	// Phase one: after it Kafka can commit whatever happens to this process.
	prepared, err := b.session.Prepare(ctx)
	if err != nil {
		return errors.Join(err, b.session.Abort(ctx))
	}
	b.maybeDie(n, undecided)

	// The decision. From here on the transfer is made.
	if err := appendJournal(b.journal, entry{Transfer: n, Txn: prepared}); err != nil {
		// It may or may not be on disk: only the recovery can tell.
		return err
	}
	b.maybeDie(n, decided)

	// Phase two.
	err = b.session.Commit(ctx)
	for txnsession.IsOutcomeUnknown(err) && ctx.Err() == nil {
		err = b.session.Commit(ctx)
	}
	if err == nil {
		b.say("bank: transfer %d is in the journal and in Kafka", n)
	}
	return err
}

func (b *bank) maybeDie(n int, now moment) {
	if n == b.upTo && b.crash == now {
		b.say("bank: transfer %d is prepared in Kafka and %s; killed", n, map[moment]string{
			undecided: "not in the journal", decided: "in the journal",
		}[now])
		examplekit.Die()
	}
}
