package txnsession_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/txnsession"
)

// cell is one field of the table while it runs: a scenario, met by a fault.
type cell struct {
	*testing.T
	b  *bench
	sc *scenario
	f  fault

	id, topic, group string
	net              *faultnet.Net
	nc               *netclient.Client
	injected         []*faultnet.Injection
	onRetry          atomic.Pointer[func(key int16)]

	s        *txnsession.Session // the one that is called
	owner    *txnsession.Session // the writer, where s is resumed
	w        *cellWriter
	prepared txnsession.PreparedTxn
	verdict  txnsession.Verdict // of the last Outcome

	identity  string // of the transaction that the cell is about
	pending   string // the record of the transaction that is open or unresolved
	offsets   bool   // it has the offsets of the group
	committed bool   // the transaction that the cell is about
	denied    bool   // an error has said that it never will be
	mustInit  bool   // under old rules: the epoch must move before the next transaction
	says      claim
}

// firstOffset is what SendOffsets commits.
const firstOffset = 7

func newCell(t *testing.T, b *bench, sc *scenario, f fault) *cell {
	t.Helper()
	name := kafkatest.UniqueID(t)
	c := &cell{
		T: t, b: b, sc: sc, f: f,
		id: name + "-id", topic: name, group: name + "-group",
		net: faultnet.New(),
	}
	c.says = claim{cell: t.Name(), group: c.group, offset: -1}
	t.Cleanup(c.net.Close)
	c.nc = c.client()
	b.topic(t, c.topic)
	b.claim(c.topic, c.says)
	return c
}

// client is another process on the cell's network.
func (c *cell) client() *netclient.Client {
	c.Helper()
	nc, err := netclient.New(append([]kgo.Opt{
		kgo.SeedBrokers(c.b.seeds...), kgo.Dialer(c.net.Dial),
		kgo.RetryBackoffFn(fastBackoff), netclient.WithHooks(cellHook{c}),
		netclient.CoordinatorLanes(1), netclient.ProduceLanes(1),
	}, c.b.opts...)...)
	require.NoError(c, err)
	c.Cleanup(nc.Close)
	return nc
}

type cellHook struct{ c *cell }

func (h cellHook) OnRetry(r netclient.Retry) { h.c.retried(kmsg.Key(r.Key)) }

// retried is told of each try that failed and is going to be repeated.
func (c *cell) retried(key kmsg.Key) {
	if fn := c.onRetry.Load(); fn != nil {
		(*fn)(int16(key))
	}
}

func (c *cell) run() {
	ctx := tableContext(c.T)
	if c.sc.setup != nil {
		c.sc.setup(c, ctx)
	}
	c.mustInit = c.mustInit || c.sc.key == kmsg.EndTxn && c.f.left
	if c.f.down || c.f.redial {
		c.disconnect(ctx)
	}
	c.inject()
	before := c.sent()
	err := c.act(ctx)
	want := c.sc.want(c.f)
	c.met()
	c.check(err, want)
	if c.f.final() && !c.sc.repeats && c.f.code != strangeCode {
		require.Equal(c, len(c.f.what), c.sent()-before, "%v is not retried", kerr.ErrorForCode(c.f.code))
	}
	if !c.f.late || c.sc.insist {
		c.lift()
	}
	s := c.goOn(ctx, err, want)
	c.after(ctx, s)
	c.followsRules()
	c.says.decided = true
	c.b.claim(c.topic, c.says)
}

// followsRules asserts that nothing was sent in a version of the other rules: it
// could poison the id.
func (c *cell) followsRules() {
	c.Helper()
	firstNew := map[int16]int16{int16(kmsg.Produce): 12, int16(kmsg.EndTxn): 5, int16(kmsg.TxnOffsetCommit): 5}
	for _, r := range c.net.Log() {
		if first, ok := firstNew[r.Key]; ok {
			require.Equal(c, c.b.rules >= 2, r.Version >= first, "%s v%d", kmsg.NameForKey(r.Key), r.Version)
		}
	}
}

// inject puts the fault in place.
func (c *cell) inject() {
	for _, f := range c.f.what {
		if f.Key != faultnet.Any {
			f.Key, f.Match = int16(c.sc.key), c.sc.ours
		}
		f.Node = faultnet.Any
		if c.sc.insist && c.f.end != endNever {
			f.Times = faultnet.Forever
		}
		c.injected = append(c.injected, c.net.Inject(f))
	}
	if c.sc.behind != nil {
		c.sc.behind(c)
	}
}

// disconnect ends the connections. A client sees that only when it uses one:
// the question has it see it, so that the call needs a new one.
func (c *cell) disconnect(ctx context.Context) {
	c.net.DownAll()
	ctx, cancel := context.WithCancel(ctx)
	fn := func(int16) { cancel() }
	c.onRetry.Store(&fn)
	_, _ = c.s.Outcome(ctx)
	c.onRetry.Store(nil)
	cancel()
	if c.f.redial {
		c.net.UpAll()
	}
}

// lift ends the fault; what it held goes its way.
func (c *cell) lift() {
	for _, inj := range c.injected {
		inj.Remove()
	}
	c.net.UpAll()
}

var errBudget = errors.New("the caller has waited long enough")

// act makes the call that carries the request. Where the fault is meant to last
// longer than the caller waits, the caller's context ends when the first try
// has failed, or is being held: no clock is involved.
func (c *cell) act(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	switch {
	case c.f.end == endNever:
	case c.f.end == endAtHit || c.sc.insist && !c.f.down:
		last := c.injected[len(c.injected)-1]
		go func() {
			if last.WaitHits(ctx, 1) == nil {
				cancel(errBudget)
			}
		}()
	default:
		n := atomic.Int32{}
		fn := func(key int16) {
			if c.f.down || c.sc.anyRetry || key == int16(c.sc.key) && int(n.Add(1)) == max(1, len(c.f.what)) {
				cancel(errBudget)
			}
		}
		c.onRetry.Store(&fn)
		defer c.onRetry.Store(nil)
	}
	return c.sc.call(c, ctx)
}

// met asserts that the fault did its work.
func (c *cell) met() {
	c.Helper()
	for _, inj := range c.injected {
		require.NoError(c, inj.Err())
		require.Positive(c, inj.Hits(), "the fault was met")
	}
}

// sent counts the requests that the fault is aimed at.
func (c *cell) sent() int {
	n := 0
	for _, r := range c.net.Log() {
		if r.Key == int16(c.sc.key) && (c.sc.ours == nil || c.sc.ours(r)) {
			n++
		}
	}
	return n
}

// changes counts the requests that change something.
func (c *cell) changes() int {
	n := 0
	for _, key := range []kmsg.Key{
		kmsg.Produce, kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn,
		kmsg.TxnOffsetCommit, kmsg.EndTxn,
	} {
		n += c.net.Requests(int16(key))
	}
	return n
}

// check compares what the call returned, and what it left, with the table.
func (c *cell) check(err error, want want) {
	c.Helper()
	require.Equal(c, want.state, c.s.State(), "the state after %v", err)
	if want.verdict != 0 {
		require.Equal(c, want.verdict, c.verdict)
	}
	if !want.fails {
		require.NoError(c, err)
		return
	}
	require.Error(c, err)
	got := factsOf(err)
	require.Equal(c, want.facts.String(), got.String(), "%v", err)
	c.denied = c.denied || got&notCommitted != 0
	require.False(c, c.committed && c.denied, "it is committed, but: %v", err)
	for _, is := range want.is {
		require.ErrorIs(c, err, is)
	}
	if c.f.end != endNever {
		require.ErrorIs(c, err, errBudget)
	}
	if c.f.code != 0 && !want.other && !(c.sc.insist && c.f.end != endNever) {
		require.ErrorIs(c, err, codeErr(c.f.code))
	}
	var e *txnsession.Error
	require.ErrorAs(c, err, &e)
	if want.inError == "" {
		require.Equal(c, want.state.String(), e.State.String(), "the state that the error tells")
	} else if want.inError != noSession {
		require.Equal(c, want.inError, e.State.String(), "the state that the error tells")
	}
	if got&neverSent != 0 {
		require.False(c, e.MaybeSent, "%v", err)
	} else if c.f.left && c.sc.writes && got&^unknown == 0 {
		require.True(c, e.MaybeSent, "a try without an answer: %v", err)
	}
}

func codeErr(code int16) error {
	if err := kerr.ErrorForCode(code); err != nil {
		return err
	}
	return kerr.UnknownServerError
}

// facts are the predicates of an error.
type facts uint8

const (
	notCommitted facts = 1 << iota
	unknown
	abortable
	fatal
	fenced
	neverSent
)

func factsOf(err error) (f facts) {
	for i, is := range []func(error) bool{
		txnsession.IsNotCommitted, txnsession.IsOutcomeUnknown, txnsession.IsAbortable,
		txnsession.IsFatal, txnsession.IsFenced, txnsession.NeverSent,
	} {
		if is(err) {
			f |= 1 << i
		}
	}
	return f
}

func (f facts) String() string {
	var names []string
	for i, name := range []string{"not committed", "unknown", "abortable", "fatal", "fenced", "never sent"} {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// want is what a cell expects of its call.
type want struct {
	fails   bool
	facts   facts
	state   txnsession.State
	inError string // the state that the error tells, where that is of another session
	verdict txnsession.Verdict
	is      []error
	other   bool // the error does not carry the code
}

func ok(state txnsession.State) want { return want{state: state} }

func fails(state txnsession.State, f facts, is ...error) want {
	return want{fails: true, state: state, facts: f, is: is}
}

// noSession is the inError of an error that tells no state.
const noSession = "none"

// rowOf returns the row of the retry table that decides about a code.
func rowOf(key kmsg.Key, code int16) transport.Row {
	var rest transport.Row
	for _, r := range transport.Rows() {
		switch {
		case r.Key != int16(key):
		case r.Rest:
			rest = r
		case r.Code == code:
			return r
		}
	}
	return rest
}
