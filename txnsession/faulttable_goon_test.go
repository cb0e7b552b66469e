package txnsession_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/txnsession"
)

// goOn does what the state after the call allows, and asserts that it works,
// until there is a session that is ready. Calls that are not allowed are
// refused and send nothing.
func (c *cell) goOn(ctx context.Context, err error, want want) *txnsession.Session {
	if c.sc.goOn != nil {
		c.sc.goOn(c, ctx)
	}
	s := c.s
	for range 8 {
		switch s.State() {
		case txnsession.StateUninitialized:
			c.refuses(s, "Begin", "Commit", "Abort", "SendOffsets", "Prepare")
			require.NoError(c, s.Initialize(ctx))
			c.ended(false)
			c.mustInit = false
		case txnsession.StateInTransaction:
			if err != nil {
				if c.sc.blocks {
					c.refuses(s, "Commit", "Prepare")
				}
				err = c.sc.call(c, ctx)
				require.NoError(c, err, "the same call again")
				continue
			}
			require.NoError(c, c.commit(ctx, s))
		case txnsession.StatePrepared:
			c.refuses(s, "Initialize", "Begin", "SendOffsets", "Prepare")
			if err != nil && !errors.Is(err, txnsession.ErrOutcomeLost) {
				err = c.sc.call(c, ctx)
				require.NoError(c, err, "the same call again")
				continue
			}
			c.endPrepared(ctx, s)
		case txnsession.StateCommitting:
			c.refuses(s, "Abort", "Begin", "SendOffsets", "Prepare")
			require.NoError(c, c.commit(ctx, s), "an unresolved commit, called again")
		case txnsession.StateAborting:
			c.refuses(s, "Commit", "Begin", "SendOffsets", "Prepare")
			require.NoError(c, c.abort(ctx, s), "an unresolved abort, called again")
		case txnsession.StateAbortableError:
			c.refuses(s, "Commit", "Begin", "SendOffsets", "Prepare")
			require.NoError(c, c.abort(ctx, s))
			c.mustInit = true
		case txnsession.StateReady:
			return s
		case txnsession.StateFatalError, txnsession.StateClosed:
			c.refuses(s, "Initialize", "Begin", "SendOffsets", "Prepare", "Commit", "Abort")
			_, err := s.Outcome(ctx)
			require.NoError(c, err, "a question is always allowed")
			if c.owner != nil && s != c.owner {
				s = c.owner
				c.endPrepared(ctx, s)
				continue
			}
			s = c.session(c.id)
			require.NoError(c, s.Initialize(ctx), "a new session takes over")
			c.ended(false)
			c.mustInit = false
			return s
		default:
			require.Fail(c, "no way on", "%s", s.State())
		}
	}
	require.Fail(c, "no end", "%s", s.State())
	return nil
}

// endPrepared is the writer ending a prepared transaction which another may
// have ended before: the same end, or an abort if nobody has.
func (c *cell) endPrepared(ctx context.Context, s *txnsession.Session) {
	c.Helper()
	if c.committed {
		require.NoError(c, s.Commit(ctx), "what was committed elsewhere")
		return
	}
	require.NoError(c, c.abort(ctx, s))
}

// after runs one more transaction, in the middle of which late copies arrive.
func (c *cell) after(ctx context.Context, s *txnsession.Session) {
	require.NoError(c, s.Begin(ctx))
	if c.mustInit || c.b.rules >= 2 {
		require.NotEqual(c, c.identity, identityOf(s), "the epoch has moved")
	}
	w := c.writer(s)
	err := w.hold(ctx, "after")
	c.releaseLate(ctx)
	if err == nil {
		err = w.Flush(ctx)
	}
	if err == nil {
		err = s.Commit(ctx)
	}
	if err != nil && c.sc.key == kmsg.InitProducerID && (c.f.late || c.f.twice) {
		c.fencedByGhost(ctx, s)
		return
	}
	require.NoError(c, err)
	c.says.values = append(c.says.values, "after")
	require.Equal(c, txnsession.StateReady, s.State())
	require.NoError(c, s.Close(ctx))
}

// fencedByGhost is the end of a session whose own InitProducerId arrived once
// more: it is fenced as by another owner, and nothing of it is seen.
func (c *cell) fencedByGhost(ctx context.Context, s *txnsession.Session) {
	c.committed = false // that was the transaction before
	if s.State() != txnsession.StateFatalError {
		require.Equal(c, txnsession.StateAbortableError, s.State())
		err := s.Abort(ctx)
		require.True(c, txnsession.IsFenced(err) && txnsession.IsNotCommitted(err), "%v", err)
	}
	c.refuses(s, "Initialize", "Begin", "Commit", "Abort")
	next := c.session(c.id)
	require.NoError(c, next.Initialize(ctx))
	require.NoError(c, next.Begin(ctx))
	require.NoError(c, c.writer(next).write(ctx, "after"))
	require.NoError(c, next.Commit(ctx))
	c.says.values = append(c.says.values, "after")
}

func identityOf(s *txnsession.Session) string {
	return fmt.Sprintf("producer id %d, epoch %d", s.ProducerID(), s.ProducerEpoch())
}

// releaseLate delivers the copies that CutLate holds and waits for the broker
// to have served them.
func (c *cell) releaseLate(ctx context.Context) {
	c.lift()
	require.NoError(c, c.net.Wait(ctx, func(log []faultnet.Request) bool {
		for _, r := range log {
			if r.Action == faultnet.CutLate && !r.Served {
				return false
			}
		}
		return true
	}))
}

// refuses asserts that the calls are refused and send nothing.
func (c *cell) refuses(s *txnsession.Session, calls ...string) {
	c.Helper()
	ctx := tableContext(c.T)
	for _, name := range calls {
		before := c.changes()
		var err error
		switch name {
		case "Initialize":
			err = s.Initialize(ctx)
		case "Begin":
			err = s.Begin(ctx)
		case "SendOffsets":
			err = s.SendOffsets(ctx, c.someOffsets(), txnsession.Unfenced(c.group))
		case "Prepare":
			_, err = s.Prepare(ctx)
		case "Commit":
			err = s.Commit(ctx)
		case "Abort":
			err = s.Abort(ctx)
		}
		require.Error(c, err, name)
		if s.State() == txnsession.StateClosed {
			require.ErrorIs(c, err, txnsession.ErrClosed, name)
		} else {
			require.ErrorIs(c, err, txnsession.ErrState, name)
		}
		require.True(c, txnsession.NeverSent(err), "%s: %v", name, err)
		require.Equal(c, before, c.changes(), "%s sent something", name)
		require.False(c, c.committed && txnsession.IsNotCommitted(err), "it is committed, but %s says: %v", name, err)
		f := factsOf(err)
		c.denied = c.denied || f&notCommitted != 0
		switch s.State() {
		case txnsession.StateFatalError:
			require.NotZero(c, f&fatal, "%s: %v", name, err)
		case txnsession.StateAbortableError:
			require.Equal(c, abortable|notCommitted, f&(abortable|notCommitted), "%s: %v", name, err)
		case txnsession.StateCommitting, txnsession.StateAborting:
			require.NotZero(c, f&unknown, "%s: %v", name, err)
		}
	}
}

func (c *cell) someOffsets() map[string]map[int32]kgo.EpochOffset {
	return map[string]map[int32]kgo.EpochOffset{c.topic: {0: {Epoch: -1, Offset: firstOffset}}}
}

// commit and abort note what became of the transaction.
func (c *cell) commit(ctx context.Context, s *txnsession.Session) error {
	err := s.Commit(ctx)
	if err == nil {
		c.ended(true)
	}
	return err
}

func (c *cell) abort(ctx context.Context, s *txnsession.Session) error {
	err := s.Abort(ctx)
	if err == nil {
		c.ended(false)
	}
	return err
}

func (c *cell) ended(commit bool) {
	if commit && c.pending != "" {
		require.False(c, c.denied, "an error has said that it would never be committed")
		c.committed = true
		c.says.values = append(c.says.values, c.pending)
		if c.offsets {
			c.says.offset = firstOffset
		}
	}
	c.pending, c.offsets = "", false
}

// abortCutFlush aborts after a Commit whose flush was cut short. Under old rules
// a Produce without an answer can land after the marker: the epoch must move.
func abortCutFlush(c *cell, ctx context.Context) {
	require.NoError(c, c.abort(ctx, c.s))
	c.mustInit = c.f.left && c.f.end == endAtRetry
}
