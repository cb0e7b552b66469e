package statemachine_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	sm "github.com/ktxn/ktxn/internal/statemachine"
)

var update = flag.Bool("update", false, "write docs/state-machine.md instead of comparing it")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The transitions of the design, written again by hand: to, and from where.
var design = map[sm.State][]sm.State{
	sm.Uninitialized:  {sm.Initializing},
	sm.Initializing:   {sm.Uninitialized, sm.Ready, sm.Committing, sm.Aborting, sm.AbortableError},
	sm.Ready:          {sm.Initializing, sm.Committing, sm.Aborting, sm.Prepared},
	sm.InTransaction:  {sm.Ready},
	sm.Prepared:       {sm.InTransaction, sm.Initializing},
	sm.Committing:     {sm.InTransaction, sm.Prepared},
	sm.Aborting:       {sm.InTransaction, sm.Prepared, sm.AbortableError},
	sm.AbortableError: {sm.InTransaction, sm.Prepared, sm.Committing, sm.AbortableError},
	sm.FatalError: {
		sm.Uninitialized, sm.Initializing, sm.Ready, sm.InTransaction, sm.Prepared,
		sm.Committing, sm.Aborting, sm.AbortableError, sm.FatalError,
	},
	sm.Closed: sm.States(),
}

func TestTransitionsAreThoseOfTheDesign(t *testing.T) {
	got := make(map[sm.State]map[sm.State]bool)
	for _, from := range sm.States() {
		for _, e := range sm.Events() {
			if to, ok := sm.Next(from, e); ok {
				if got[to] == nil {
					got[to] = make(map[sm.State]bool)
				}
				got[to][from] = true
			}
		}
	}
	for _, to := range sm.States() {
		want := make(map[sm.State]bool)
		for _, from := range design[to] {
			want[from] = true
		}
		require.Equal(t, want, got[to], "ways into %s", to)
	}
}

func TestNextIsTotal(t *testing.T) {
	for s := range 256 {
		for e := range 256 {
			to, ok := sm.Next(sm.State(s), sm.Event(e))
			if !ok {
				require.Equal(t, sm.State(s), to, "a refused event must not move the state")
			}
		}
	}
	_, ok := sm.Next(sm.State(200), sm.Close)
	require.False(t, ok)
}

func TestClosedIsTerminal(t *testing.T) {
	for _, e := range sm.Events() {
		to, ok := sm.Next(sm.Closed, e)
		require.Equal(t, e == sm.Close, ok, "event %s", e)
		require.Equal(t, sm.Closed, to)
	}
}

// An end of one direction never follows an unresolved end of the other
// (invariant 3), whatever happens in between, unless an Initialize came.
func TestEndsNeverCross(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := sm.Uninitialized
		var open sm.Event // the end that is under way
		inEnd := false
		for _, e := range rapid.SliceOfN(rapid.SampledFrom(sm.Events()), 1, 60).Draw(rt, "events") {
			to, ok := sm.Next(s, e)
			if !ok {
				continue
			}
			switch e {
			case sm.SendCommit, sm.SendAbort:
				if inEnd && open != e {
					rt.Fatalf("%s while %s is unresolved, in %s", e, open, s)
				}
				open, inEnd = e, true
			case sm.Ended, sm.Refused, sm.Initialized, sm.KeptPrepared, sm.Kill, sm.Close, sm.GaveUp:
				inEnd = false
			}
			s = to
		}
	})
}

func TestAllowed(t *testing.T) {
	for _, s := range sm.States() {
		calls := sm.Allowed(s, sm.Kind{})
		if s != sm.Closed {
			require.Contains(t, calls, sm.CallClose, "Close in %s", s)
		}
		for _, c := range sm.Calls() {
			want := false
			for _, a := range calls {
				want = want || a == c
			}
			require.Equal(t, want, sm.May(s, sm.Kind{}, c))
		}
		resumed := sm.Allowed(s, sm.Kind{Resumed: true})
		for _, c := range []sm.Call{sm.CallInitialize, sm.CallInitializeKeepPrepared, sm.CallBegin} {
			require.NotContains(t, resumed, c, "a resumed session in %s", s)
		}
	}
	require.Contains(t, sm.Allowed(sm.Committing, sm.Kind{}), sm.CallInitialize)
	require.NotContains(t, sm.Allowed(sm.Committing, sm.Kind{TwoPhase: true}), sm.CallInitialize)
	require.Contains(t, sm.Allowed(sm.Ready, sm.Kind{TwoPhase: true}), sm.CallInitialize)
	require.NotContains(t, sm.Allowed(sm.Committing, sm.Kind{}), sm.CallAbort)
	require.Nil(t, sm.Allowed(sm.State(99), sm.Kind{}))
}

func TestNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range sm.States() {
		require.False(t, seen[s.String()], s)
		seen[s.String()] = true
	}
	for _, e := range sm.Events() {
		require.NotEqual(t, "invalid", e.String())
	}
	for _, c := range sm.Calls() {
		require.NotEqual(t, "invalid", c.String())
	}
	require.Equal(t, "in_transaction", sm.InTransaction.String())
	require.Equal(t, "invalid", sm.State(99).String())
	require.Equal(t, "invalid", sm.Event(99).String())
	require.Equal(t, "invalid", sm.Call(99).String())
}

func TestPage(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "state-machine.md")
	page := render()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(page), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, page, string(have), "docs/state-machine.md is not what the table says: go test ./internal/statemachine -update")
}

// meaning says what a state is for a user.
var meaning = map[sm.State]string{
	sm.Uninitialized:  "No identity that may be used: before Initialize, or after one that gave up.",
	sm.Initializing:   "InitProducerId is under way.",
	sm.Ready:          "The session has an identity and no transaction.",
	sm.InTransaction:  "A transaction is open.",
	sm.Prepared:       "Everything is flushed; only the end may follow, here or in another process. A resumed session begins here.",
	sm.Committing:     "EndTxn(commit) was sent and has no answer that decides.",
	sm.Aborting:       "EndTxn(abort) was sent and has no answer that decides.",
	sm.AbortableError: "The transaction cannot be committed; Abort, then Begin, goes on.",
	sm.FatalError:     "Fenced, or nothing a call could mend: a new session is needed.",
	sm.Closed:         "Close was called, or a resumed session's transaction has ended.",
}

func render() string {
	var b strings.Builder
	b.WriteString("# The state machine of a session\n\nThis page is rendered from the table in `internal/statemachine` (`go test ./internal/statemachine -update`).\n\n")
	b.WriteString("## States\n\n| state | meaning | calls |\n|---|---|---|\n")
	for _, s := range sm.States() {
		names := []string{}
		for _, c := range sm.Allowed(s, sm.Kind{}) {
			names = append(names, c.String())
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s, meaning[s], strings.Join(names, ", "))
	}
	b.WriteString("\nAny other call is a typed error (`ErrState`) that names the calls above; nothing is sent. A resumed session never allows Initialize or Begin. While an end is unresolved, a session with `TwoPhaseCommit` does not allow Initialize.\n")
	b.WriteString("\n## Transitions\n\nA row is a state, a column an event; an empty cell is refused.\n\n| |")
	for _, e := range sm.Events() {
		fmt.Fprintf(&b, " %s |", e)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(sm.Events())) + "\n")
	for _, s := range sm.States() {
		fmt.Fprintf(&b, "| **%s** |", s)
		for _, e := range sm.Events() {
			if to, ok := sm.Next(s, e); ok {
				fmt.Fprintf(&b, " %s |", to)
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n## Events\n\n")
	b.WriteString(strings.Join([]string{
		"- `initialize`: InitProducerId is about to be sent; `gave_up`: it is not tried again now; `initialized`, `kept_prepared`: its answer (the second with a transaction that goes on, KIP-939)",
		"- `begin`, `prepare`: the calls of these names have done their work",
		"- `send_commit`, `send_abort`: the first EndTxn of that direction was written to a connection; until then the session is where it was, and a call that is cut short provably had no effect",
		"- `ended`: an answer, the coordinator's description or a marker says how the transaction ended, or there was nothing to end",
		"- `fail`: a part of the work has failed, so that the transaction must not be committed; `refused`: the coordinator has definitely not committed",
		"- `kill`: another owner holds the transactional id, or the coordinator no longer knows the producer id",
		"- `close`: Close, or the end of a resumed session's transaction",
	}, "\n") + "\n")
	return b.String()
}
