package txnsession_test

import (
	"context"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/link"
	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/txnsession"
)

// scenario is a way in which a session comes to send a request: how to get
// there, which call carries the request, and what the table says of it.
type scenario struct {
	name  string
	key   kmsg.Key
	rules []int16 // nil: both

	ours  func(faultnet.Request) bool // which requests of the key are meant; nil: all
	setup func(c *cell, ctx context.Context)
	call  func(c *cell, ctx context.Context) error

	ok      want                         // the fault passes
	refused func(f fault) want           // an answer that ends the call
	cut     func(f fault) want           // the caller's context ended; nil: it does not bound the request
	skip    func(f fault) bool           // faults that say nothing here
	behind  func(*cell)                  // what meets the requests that the fault lets through
	goOn    func(*cell, context.Context) // before what the state allows

	writes    bool // the request changes something
	blocks    bool // a call that was cut short blocks Commit
	seconds   bool // also answers after a lost try
	brief     bool // another scenario has every row that is retried
	insist    bool // kgo repeats the request by itself
	noRefresh bool // a node that is not the one any more is not looked for
	anyRetry  bool // the retry that is told has another key
	repeats   bool // the question may be asked more than once
}

// want is what a fault leads to.
func (sc *scenario) want(f fault) want {
	switch {
	case f.end != endNever:
		return sc.cut(f)
	case f.final(), sc.noRefresh && f.row != nil && f.row.Class == transport.ClassRefresh:
		return sc.refused(f)
	}
	return sc.ok
}

func (sc *scenario) under(rules int16) bool {
	for _, r := range sc.rules {
		if r != rules {
			return false
		}
	}
	return true
}

var (
	onlyOld = []int16{0}
	onlyNew = []int16{2}
)

func (c *cell) session(id string) *txnsession.Session {
	c.Helper()
	s, err := txnsession.New(c.nc, id)
	require.NoError(c, err)
	return s
}

// fresh: a session that is not initialised, whose id has an open transaction of
// an owner that is gone.
func fresh(c *cell, ctx context.Context) {
	gone := c.session(c.id)
	require.NoError(c, gone.Initialize(ctx))
	require.NoError(c, gone.Begin(ctx))
	require.NoError(c, c.writer(gone).write(ctx, "of the former owner"))
	// Another process, that knows nothing of the cluster yet.
	c.nc = c.client()
	c.s = c.session(c.id)
}

func ready(c *cell, ctx context.Context) {
	c.s = c.session(c.id)
	require.NoError(c, c.s.Initialize(ctx))
}

func begun(c *cell, ctx context.Context) {
	ready(c, ctx)
	require.NoError(c, c.s.Begin(ctx))
	c.identity = identityOf(c.s)
	c.w = c.writer(c.s)
}

// open: a transaction with one record that is acknowledged.
func open(c *cell, ctx context.Context) {
	begun(c, ctx)
	require.NoError(c, c.w.write(ctx, "first"))
	c.pending = "first"
}

// again: ready once more, after a transaction.
func again(c *cell, ctx context.Context) {
	open(c, ctx)
	require.NoError(c, c.commit(ctx, c.s))
}

// failed: the transaction can only be aborted.
func failed(c *cell, ctx context.Context) {
	open(c, ctx)
	txn, err := c.s.Enlist(c.w, txnsession.PhaseSend)
	require.NoError(c, err)
	txn.Fail(kerr.MessageTooLarge)
	require.Equal(c, txnsession.StateAbortableError, c.s.State())
	c.mustInit = true
}

// holding: a transaction whose record is not sent yet.
func holding(c *cell, ctx context.Context) {
	begun(c, ctx)
	require.NoError(c, c.w.hold(ctx, "first"))
	c.pending = "first"
}

// preparedHere: the writer is going to end what it has prepared.
func preparedHere(c *cell, ctx context.Context) {
	open(c, ctx)
	p, err := c.s.Prepare(ctx)
	require.NoError(c, err)
	c.mustInit = true // a copy of another process's end may be under way
	c.prepared, err = txnsession.ParsePreparedTxn(p.String())
	require.NoError(c, err)
}

// resumed: another process is going to end what the writer has prepared.
func resumed(c *cell, ctx context.Context) {
	preparedHere(c, ctx)
	c.owner = c.s
	var err error
	c.s, err = txnsession.ResumePrepared(c.client(), c.prepared)
	require.NoError(c, err)
}

// unresolved: the commit was applied, and its answer is lost.
func unresolved(c *cell, ctx context.Context) {
	open(c, ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fn := func(key int16) {
		if key == int16(kmsg.EndTxn) {
			cancel(errBudget)
		}
	}
	c.onRetry.Store(&fn)
	defer c.onRetry.Store(nil)
	lost := c.net.Inject(faultnet.Fault{Key: int16(kmsg.EndTxn), Node: faultnet.Any, Action: faultnet.CutAfter})
	err := c.s.Commit(ctx)
	require.True(c, txnsession.IsOutcomeUnknown(err), "%v", err)
	require.Equal(c, 1, lost.Hits())
}

// forgotten: as unresolved, and the coordinator does not tell.
func forgotten(c *cell, ctx context.Context) {
	unresolved(c, ctx)
	c.net.Inject(faultnet.Fault{
		Key: int16(kmsg.DescribeTransactions), Node: faultnet.Any, Times: faultnet.Forever,
		Action: faultnet.Answer, Code: kerr.TransactionalIDNotFound.Code,
	})
}

// ambiguous: ready, but a copy of the last end may be under way.
func ambiguous(c *cell, ctx context.Context) {
	open(c, ctx)
	lost := c.net.Inject(faultnet.Fault{Key: int16(kmsg.EndTxn), Node: faultnet.Any, Action: faultnet.CutAfter})
	require.NoError(c, c.commit(ctx, c.s))
	require.Equal(c, 1, lost.Hits())
}

// lookedUp: the client does not know the coordinator any more.
func lookedUp(c *cell, ctx context.Context) {
	open(c, ctx)
	link.Transport(c.nc).Forget(transport.TxnCoordinator(c.id), c.b.node)
}

// moved: the coordinator is going to say that it is no more.
func moved(c *cell, ctx context.Context) {
	open(c, ctx)
	c.net.Inject(faultnet.Fault{
		Key: int16(kmsg.EndTxn), Node: faultnet.Any, Action: faultnet.Answer, Code: kerr.NotCoordinator.Code,
	})
}

func callInitialize(c *cell, ctx context.Context) error {
	err := c.s.Initialize(ctx)
	c.mustInit = c.mustInit && err != nil
	return err
}

func callBegin(c *cell, ctx context.Context) error  { return c.s.Begin(ctx) }
func callCommit(c *cell, ctx context.Context) error { return c.commit(ctx, c.s) }
func callAbort(c *cell, ctx context.Context) error  { return c.abort(ctx, c.s) }

func callPrepare(c *cell, ctx context.Context) error {
	_, err := c.s.Prepare(ctx)
	return err
}

func callAddPartitions(c *cell, ctx context.Context) error {
	return c.s.AddPartitions(ctx, map[string][]int32{c.topic: {1}})
}

func callHold(c *cell, ctx context.Context) error {
	err := c.w.hold(ctx, "first")
	if err == nil {
		c.pending = "first"
	}
	return err
}

func callSendOffsets(c *cell, ctx context.Context) error {
	err := c.s.SendOffsets(ctx, c.someOffsets(), txnsession.Unfenced(c.group))
	c.offsets = c.offsets || err == nil
	return err
}

func callOutcome(c *cell, ctx context.Context) error {
	out, err := c.s.Outcome(ctx)
	c.verdict = out.Verdict
	return err
}

// callNext is the first work of the next transaction, which waits for the
// markers of the last.
func callNext(c *cell, ctx context.Context) error {
	if err := c.s.Begin(ctx); err != nil {
		return err
	}
	c.pending = "second"
	return c.w.write(ctx, "second")
}

func callCommitter(c *cell, ctx context.Context) error {
	committer, err := txnsession.NewCommitter(c.client())
	require.NoError(c, err)
	r := committer.Commit(ctx, []txnsession.PreparedTxn{c.prepared})[0]
	status := txnsession.WasCommitted
	switch {
	case r.Err == nil:
		c.ended(true)
	case txnsession.IsOutcomeUnknown(r.Err):
		status = txnsession.OutcomeUnknown
	case txnsession.NeverSent(r.Err):
		status = txnsession.NotTried
	case txnsession.IsNotCommitted(r.Err):
		status = txnsession.WasAborted
	}
	require.Equal(c, status.String(), r.Status.String(), "%v", r.Err)
	return r.Err
}

func callLeftovers(c *cell, ctx context.Context) error {
	committer, err := txnsession.NewCommitter(c.nc)
	require.NoError(c, err)
	left, err := committer.Leftovers(ctx, c.id)
	if err == nil {
		require.Len(c, left, 1)
		require.Equal(c, c.s.ProducerID(), left[0].ProducerID)
	}
	return err
}

// ofConnection tells the ApiVersions with which kgo opens a connection from the
// sessions' own.
func ofConnection(r faultnet.Request) bool { return r.CorrelationID == 0 }
func ofSession(r faultnet.Request) bool    { return r.CorrelationID != 0 }

// forTopic tells the metadata requests of sessions from kgo's own.
func forTopic(r faultnet.Request) bool {
	req, err := r.Decode()
	if err != nil {
		return false
	}
	m, ok := req.(*kmsg.MetadataRequest)
	return ok && len(m.Topics) == 1
}
