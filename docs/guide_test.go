package docs_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

// The functions here are the code of guide.md, so that it compiles. A test
// compares the two.

func connect(brokers []string) (*netclient.Client, error) {
	nc, err := netclient.New(
		kgo.SeedBrokers(brokers...),
		kgo.ClientID("orders"),
		// TLS, SASL, logger, hooks, timeouts: kgo's options
	)
	return nc, err
}

func connectLike(cl *kgo.Client) (*netclient.Client, error) {
	nc, err := netclient.FromClient(cl) // seeds, TLS, SASL, logger and timeouts of cl
	return nc, err
}

func setUp(ctx context.Context, nc *netclient.Client) (*txnsession.Session, *producer.Producer, error) {
	session, err := txnsession.New(nc, "orders-0")
	if err != nil {
		return nil, nil, err
	}
	orders, err := producer.New(session, kgo.DefaultProduceTopic("orders"))
	if err != nil {
		return nil, nil, err
	}
	return session, orders, session.Initialize(ctx)
}

func writeAll(ctx context.Context, session *txnsession.Session, orders *producer.Producer, records []*kgo.Record) error {
	if err := session.Begin(ctx); err != nil {
		return err
	}
	for _, r := range records {
		orders.Produce(ctx, r, nil) // Commit tells if one of them could not be written
	}
	return session.Commit(ctx)
}

func joinGroup(brokers []string) (*kgo.Client, error) {
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.ConsumerGroup("billing"),
		kgo.ConsumeTopics("orders"),
		kgo.DisableAutoCommit(),                      // offsets go into the transactions
		kgo.BlockRebalanceOnPoll(),                   // a rebalance waits for the transaction
		kgo.Balancers(kgo.StickyBalancer()),          // all of it, not only a part
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // not what may still be aborted
	)
	return consumer, err
}

func readProcessWrite(ctx context.Context, session *txnsession.Session, bills *producer.Producer, consumer *kgo.Client) error {
	for {
		records := consumer.PollRecords(ctx, 500).Records()
		if ctx.Err() != nil {
			return nil
		}
		err := bill(context.WithoutCancel(ctx), session, bills, consumer, records)
		switch {
		case err == nil:
		case txnsession.IsAbortable(err) || txnsession.NeverSent(err):
			if err := session.Abort(ctx); err != nil {
				return err
			}
			consumer.SetOffsets(firstOf(records)) // read them again
		default:
			return err // fenced, fatal or unknown: see below
		}
		consumer.AllowRebalance()
	}
}

func bill(ctx context.Context, session *txnsession.Session, bills *producer.Producer, consumer *kgo.Client, records []*kgo.Record) error {
	if err := session.Begin(ctx); err != nil {
		return err
	}
	for _, r := range records {
		bills.Produce(ctx, billFor(r), nil)
	}
	if err := session.SendOffsets(ctx, after(records), txnsession.GroupOf(consumer)); err != nil {
		return err
	}
	return session.Commit(ctx)
}

func prepare(ctx context.Context, session *txnsession.Session, save func(string) error) error {
	prepared, err := session.Prepare(ctx) // everything is written and acknowledged
	if err != nil {
		return err
	}
	return save(prepared.String()) // or as JSON, or as a database/sql value
}

func commitThem(ctx context.Context, nc *netclient.Client, stored []txnsession.PreparedTxn) error {
	committer, err := txnsession.NewCommitter(nc)
	if err != nil {
		return err
	}
	for _, r := range committer.Commit(ctx, stored) {
		switch r.Status {
		case txnsession.WasCommitted: // now, or by somebody before
		case txnsession.WasAborted: // for certain and for ever: this data is lost
			slog.Error("aborted", "id", r.Txn.TransactionalID, "err", r.Err)
		case txnsession.OutcomeUnknown, txnsession.NotTried: // again later
			slog.Warn("not resolved", "id", r.Txn.TransactionalID, "err", r.Err)
		}
	}
	return nil
}

func resume(ctx context.Context, nc *netclient.Client, stored txnsession.PreparedTxn) error {
	session, err := txnsession.ResumePrepared(nc, stored)
	if err != nil {
		return err
	}
	defer session.Close(ctx) // sends nothing
	return session.Commit(ctx)
}

func bothOrNeither(ctx context.Context, db *sql.DB, session *txnsession.Session, order string) error {
	prepared, err := session.Prepare(ctx) // 1. Kafka can commit from here on
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ($1)", order); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE kafka SET prepared = $1", prepared); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil { // 2. the decision
		return err
	}
	return session.Commit(ctx) // 3. follows it
}

func recoverBoth(ctx context.Context, db *sql.DB, nc *netclient.Client, session *txnsession.Session) error {
	var stored txnsession.PreparedTxn
	if err := db.QueryRowContext(ctx, "SELECT prepared FROM kafka").Scan(&stored); err != nil {
		return err
	}
	decided, err := txnsession.ResumePrepared(nc, stored)
	if err != nil {
		return err
	}
	defer decided.Close(ctx)
	if err := decided.Commit(ctx); err != nil { // a success too if it was committed before
		return err
	}
	return session.Initialize(ctx) // aborts what was prepared and never decided
}

func recoverKeeping(ctx context.Context, session *txnsession.Session, stored txnsession.PreparedTxn) error {
	if err := session.InitializeKeepPrepared(ctx); err != nil {
		return err // ErrTwoPhaseCommitUnsupported: nothing was sent, use the way above
	}
	verdict, err := session.Complete(ctx, stored) // commits it if it is the stored one, else aborts
	if err == nil {
		slog.Info("recovered", "verdict", verdict.String())
	}
	return err
}

func commit(ctx context.Context, session *txnsession.Session) error {
	err := session.Commit(ctx)
	for txnsession.IsOutcomeUnknown(err) && ctx.Err() == nil {
		err = session.Commit(ctx) // the same question again: it cannot commit twice
	}
	switch {
	case err == nil:
		return nil
	case txnsession.IsFenced(err):
		return errStop // another process has the id, and does the work
	case txnsession.IsOutcomeUnknown(err):
		return err // undecided: do not redo the work before the outcome is known
	case txnsession.IsFatal(err):
		return err // a new session is needed
	}
	if err := session.Abort(ctx); err != nil {
		return err
	}
	return errAgain // certainly not committed: do the work again
}

func whatHappened(ctx context.Context, session *txnsession.Session) error {
	out, err := session.Outcome(ctx)
	if err != nil {
		return err // the search was cut short
	}
	switch out.Verdict {
	case txnsession.Committed, txnsession.Aborted, txnsession.Nothing: // certain
	case txnsession.Open: // not ended yet
	case txnsession.Unknown: // nothing that still exists tells; Evidence.Text says why
	}
	slog.Info("outcome", "verdict", out.Verdict.String(), "because", out.Evidence.Text)
	return nil
}

func shutDown(consumer *kgo.Client, orders *producer.Producer, session *txnsession.Session, nc *netclient.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := errors.Join(
		orders.Close(ctx),  // what is unsent fails, and its transaction with it
		session.Close(ctx), // aborts what is open, in one try
	)
	consumer.CloseAllowingRebalance()
	nc.Close() // after everything that uses it
	return err
}

func cleanUp(ctx context.Context, committer *txnsession.Committer) error {
	left, err := committer.Leftovers(ctx, "sink-7-") // open transactions of these ids
	if err != nil {
		return err
	}
	for _, l := range left {
		fmt.Println(l.TransactionalID, l.State, l.Partitions)
	}
	return committer.AbortLeftovers(ctx, left).FirstErr()
}

type audit struct{ out *producer.Producer }

func (a *audit) Flush(ctx context.Context) error {
	a.out.Produce(ctx, kgo.StringRecord("one more, in the same transaction"), nil)
	return nil
}
func (a *audit) Discard(context.Context) error { return nil }
func (a *audit) Settle(txnsession.Verdict)     {}

func enlist(session *txnsession.Session, a *audit) error {
	_, err := session.Enlist(a, txnsession.PhaseWork) // after each Begin
	return err
}

var (
	errStop  = errors.New("stop")
	errAgain = errors.New("again")
)

func billFor(r *kgo.Record) *kgo.Record { return &kgo.Record{Value: r.Value} }

func firstOf([]*kgo.Record) map[string]map[int32]kgo.EpochOffset { return nil }

func after([]*kgo.Record) map[string]map[int32]kgo.EpochOffset { return nil }

var _ = []any{
	connect, connectLike, setUp, writeAll, joinGroup, readProcessWrite, prepare, commitThem, resume,
	bothOrNeither, recoverBoth, recoverKeeping, commit, whatHappened, shutDown, cleanUp, enlist,
}
