package txnsession_test

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/internal/wire"
	"github.com/ktxn/ktxn/txnsession"
)

const (
	uninit     = txnsession.StateUninitialized
	isReady    = txnsession.StateReady
	inTxn      = txnsession.StateInTransaction
	prepared   = txnsession.StatePrepared
	committing = txnsession.StateCommitting
	aborting   = txnsession.StateAborting
	mustAbort  = txnsession.StateAbortableError
	dead       = txnsession.StateFatalError
	closed     = txnsession.StateClosed
)

// scenarios is the table: every request that a session sends, in every way in
// which it does.
var scenarios = []*scenario{
	{name: "initialize", key: kmsg.FindCoordinator, setup: fresh, call: callInitialize,
		ok: ok(isReady), refused: askedBefore(uninit), cut: askedBefore(uninit)},
	{name: "resume and commit", key: kmsg.FindCoordinator, brief: true, setup: resumed, call: callCommit,
		ok: ok(closed), refused: askedBefore(prepared), cut: askedBefore(prepared)},
	{name: "send offsets", key: kmsg.FindCoordinator, brief: true, rules: onlyNew, setup: open, call: callSendOffsets,
		ok: ok(inTxn), refused: workRefused(kmsg.TxnOffsetCommit), cut: stays(inTxn, neverSent), blocks: true},
	{name: "send offsets", key: kmsg.FindCoordinator, brief: true, rules: onlyOld, setup: open, call: callSendOffsets,
		ok: ok(inTxn), refused: workRefused(kmsg.TxnOffsetCommit), cut: lookupCut, blocks: true},
	{name: "commit", key: kmsg.FindCoordinator, brief: true, setup: lookedUp, call: callCommit,
		ok: ok(isReady), refused: askedBefore(inTxn), cut: askedBefore(inTxn)},
	{name: "abort", key: kmsg.FindCoordinator, brief: true, setup: lookedUp, call: callAbort,
		ok: ok(isReady), refused: stays(mustAbort, abortable|notCommitted|neverSent), cut: stays(mustAbort, abortable|notCommitted|neverSent)},
	{name: "commit at a coordinator that moved", key: kmsg.FindCoordinator, brief: true, setup: moved, call: callCommit,
		ok: ok(isReady), refused: stays(committing, unknown), cut: endCut(inTxn, committing, 0)},

	{name: "initialize", key: kmsg.ApiVersions, ours: ofSession, setup: fresh, call: callInitialize,
		ok: ok(isReady), refused: strange(ok(isReady), askedBefore(uninit)), cut: askedBefore(uninit), repeats: true},
	{name: "resume and commit", key: kmsg.ApiVersions, brief: true, ours: ofSession, setup: resumed, call: callCommit,
		ok: ok(closed), refused: strange(ok(closed), askedBefore(prepared)), cut: askedBefore(prepared), repeats: true},
	{name: "initialize over a new connection", key: kmsg.ApiVersions, brief: true, ours: ofConnection, setup: fresh, call: callInitialize,
		ok: ok(isReady), refused: negotiated(ok(isReady), askedBefore(uninit)), cut: askedBefore(uninit), anyRetry: true, repeats: true},

	{name: "initialize", key: kmsg.InitProducerID, setup: fresh, call: callInitialize, writes: true,
		ok: ok(isReady), refused: initRefused(notCommitted), cut: initCut(uninit)},
	{name: "initialize again", key: kmsg.InitProducerID, brief: true, setup: again, call: callInitialize, writes: true,
		ok: ok(isReady), refused: initRefused(0), cut: initCut(isReady)},
	{name: "initialize to recover", key: kmsg.InitProducerID, brief: true, setup: failed, call: callInitialize, writes: true,
		ok: ok(isReady), refused: initRefused(notCommitted), cut: initCut(mustAbort)},
	{name: "begin after an open end", key: kmsg.InitProducerID, brief: true, rules: onlyOld, setup: ambiguous, call: callBegin, writes: true,
		ok: ok(inTxn), refused: initRefused(0), cut: initCut(isReady)},

	{name: "add partitions", key: kmsg.AddPartitionsToTxn, rules: onlyOld, setup: open, call: callAddPartitions, writes: true,
		ok: ok(inTxn), refused: workRefused(kmsg.AddPartitionsToTxn), cut: partitionsCut},
	{name: "own a partition", key: kmsg.AddPartitionsToTxn, brief: true, rules: onlyOld, setup: begun, call: callHold, writes: true,
		ok: ok(inTxn), refused: workRefused(kmsg.AddPartitionsToTxn), cut: partitionsCut},
	{name: "send offsets", key: kmsg.AddOffsetsToTxn, rules: onlyOld, setup: open, call: callSendOffsets, writes: true,
		ok: ok(inTxn), refused: workRefused(kmsg.AddOffsetsToTxn), cut: offsetsCut, blocks: true},
	{name: "send offsets", key: kmsg.TxnOffsetCommit, setup: open, call: callSendOffsets, writes: true,
		ok: ok(inTxn), refused: workRefused(kmsg.TxnOffsetCommit), cut: offsetsCut, blocks: true},

	{name: "commit", key: kmsg.EndTxn, setup: open, call: callCommit, writes: true, seconds: true,
		ok: ok(isReady), refused: commitRefused, cut: endCut(inTxn, committing, 0)},
	{name: "commit what was prepared", key: kmsg.EndTxn, brief: true, setup: preparedHere, call: callCommit, writes: true, seconds: true,
		ok: ok(isReady), refused: preparedCommitRefused(isReady), cut: endCut(prepared, committing, 0)},
	{name: "resume and commit", key: kmsg.EndTxn, brief: true, setup: resumed, call: callCommit, writes: true, seconds: true,
		ok: ok(closed), refused: preparedCommitRefused(closed), cut: endCut(prepared, committing, 0)},
	{name: "committer", key: kmsg.EndTxn, brief: true, setup: preparedHere, call: callCommitter, writes: true, seconds: true,
		ok: ok(prepared), refused: elsewhere(preparedCommitRefused(closed)), cut: elsewhere(endCut(prepared, committing, 0))},
	{name: "abort", key: kmsg.EndTxn, setup: open, call: callAbort, writes: true, seconds: true,
		ok: ok(isReady), refused: abortRefused, cut: endCut(mustAbort, aborting, notCommitted)},
	{name: "abort what failed", key: kmsg.EndTxn, brief: true, setup: failed, call: callAbort, writes: true, seconds: true,
		ok: ok(isReady), refused: abortRefused, cut: endCut(mustAbort, aborting, notCommitted)},
	{name: "abort what was prepared", key: kmsg.EndTxn, brief: true, setup: preparedHere, call: callAbort, writes: true, seconds: true,
		ok: ok(isReady), refused: preparedAbortRefused(isReady), cut: endCut(prepared, aborting, 0)},
	{name: "resume and abort", key: kmsg.EndTxn, brief: true, setup: resumed, call: callAbort, writes: true, seconds: true,
		ok: ok(closed), refused: preparedAbortRefused(closed), cut: endCut(prepared, aborting, 0)},

	{name: "outcome of an open transaction", key: kmsg.DescribeTransactions, brief: true, setup: open, call: callOutcome,
		ok: verdict(inTxn, txnsession.Open), refused: finds(inTxn, txnsession.Unknown), cut: stays(inTxn, 0)},
	{name: "outcome of an unresolved commit", key: kmsg.DescribeTransactions, setup: unresolved, call: callOutcome,
		ok: verdict(committing, txnsession.Committed), refused: finds(committing, txnsession.Committed), cut: stays(committing, 0)},
	{name: "prepare", key: kmsg.DescribeTransactions, brief: true, rules: onlyOld, setup: open, call: callPrepare,
		ok: ok(prepared), refused: askedBefore(inTxn), cut: askedBefore(inTxn)},
	{name: "resume and commit", key: kmsg.DescribeTransactions, brief: true, rules: onlyOld, setup: resumed, call: callCommit,
		ok: ok(closed), refused: askedBefore(prepared), cut: askedBefore(prepared)},
	{name: "resume and commit", key: kmsg.DescribeProducers, rules: onlyOld, setup: resumed, call: callCommit,
		ok: ok(closed), refused: witnessRefused, cut: askedBefore(prepared), skip: leaderGone, noRefresh: true},
	{name: "work after a commit", key: kmsg.DescribeTransactions, brief: true, rules: onlyNew, setup: again, call: callNext,
		ok: ok(inTxn), refused: passes(inTxn), repeats: true},

	{name: "leftovers", key: kmsg.ListTransactions, setup: open, call: callLeftovers, insist: true,
		ok: ok(inTxn), refused: elsewhereFails(inTxn), cut: elsewhereFails(inTxn)},

	{name: "outcome by a marker", key: kmsg.Metadata, ours: forTopic, setup: forgotten, call: callOutcome, insist: true,
		ok: verdict(committing, txnsession.Committed), cut: stays(committing, 0),
		refused: strange(verdict(committing, txnsession.Committed), finds(committing, txnsession.Unknown))},
	{name: "send offsets", key: kmsg.Metadata, brief: true, rules: onlyNew, ours: forTopic, setup: open, call: callSendOffsets, insist: true,
		ok: ok(inTxn), refused: passes(inTxn), blocks: true},
	{name: "outcome by a marker", key: kmsg.Fetch, setup: forgotten, call: callOutcome, insist: true,
		ok: verdict(committing, txnsession.Committed), refused: finds(committing, txnsession.Unknown), cut: stays(committing, 0)},

	{name: "heartbeat", key: wire.TxnHeartbeatKey, setup: beating, call: callHeartbeat, behind: beatsAnswered, writes: true,
		ok: ok(inTxn), refused: beatRefused, cut: beatCut, skip: needsBroker},

	{name: "commit flushes", key: kmsg.Produce, setup: holding, call: callCommit,
		ok: ok(isReady), refused: flushRefused, cut: flushCut},
	{name: "abort after a flush was cut short", key: kmsg.Produce, setup: holding, call: callCommit,
		ok: ok(isReady), cut: stays(inTxn, neverSent), goOn: abortCutFlush,
		skip: func(f fault) bool { return f.end == endNever || f.row != nil }},
}

func verdict(state txnsession.State, v txnsession.Verdict) want {
	return want{state: state, verdict: v}
}

// stays: an error with these facts, whatever the code.
func stays(state txnsession.State, f facts) func(fault) want {
	return func(fault) want { return fails(state, f) }
}

// passes: the answer does not matter.
func passes(state txnsession.State) func(fault) want {
	return func(fault) want { return ok(state) }
}

// finds: the answer does not matter, since the session asks elsewhere.
func finds(state txnsession.State, v txnsession.Verdict) func(fault) want {
	return func(fault) want { return verdict(state, v) }
}

// askedBefore: a question that goes before the request that changes something:
// nothing of that was sent.
func askedBefore(state txnsession.State) func(fault) want { return stays(state, neverSent) }

// initRefused is what InitProducerId's refusals lead to. held are the facts
// about the last transaction where the session is lost.
func initRefused(held facts) func(fault) want {
	return func(f fault) want {
		switch f.row.Class {
		case transport.ClassFenced:
			return fails(dead, fatal|fenced|held)
		case transport.ClassFatal:
			return fails(dead, fatal|held)
		}
		return fails(uninit, 0) // Initialize may be called again
	}
}

// initCut: before is the state if nothing was sent.
func initCut(before txnsession.State) func(fault) want {
	return func(f fault) want {
		if f.down {
			return fails(before, neverSent)
		}
		return fails(uninit, 0)
	}
}

// workRefused is what the refusals of a transaction's work lead to, by the rows
// of key.
func workRefused(key kmsg.Key) func(fault) want {
	return func(f fault) want {
		switch transport.Classify(int16(key), f.code) {
		case transport.ClassFenced:
			return fails(dead, fatal|fenced|notCommitted)
		case transport.ClassFatal:
			return fails(dead, fatal|notCommitted)
		}
		return fails(mustAbort, abortable|notCommitted)
	}
}

// partitionsCut: the request goes on without the caller.
func partitionsCut(fault) want {
	w := fails(inTxn, 0)
	w.other = true
	return w
}

// offsetsCut: what was cut short may be repeated, and must be; what the broker
// has turned down all the time has failed.
func offsetsCut(f fault) want {
	switch {
	case f.down:
		return fails(inTxn, neverSent)
	case f.row != nil && !f.row.Open:
		return fails(mustAbort, abortable|notCommitted)
	}
	return fails(inTxn, 0)
}

// lookupCut: under old rules AddOffsetsToTxn goes before the group's look-up.
func lookupCut(f fault) want {
	if f.down {
		return fails(inTxn, neverSent)
	}
	return fails(inTxn, 0)
}

// endCut: before is the state if nothing was written. certain are the facts of
// the direction.
func endCut(before, after txnsession.State, certain facts) func(fault) want {
	return func(f fault) want {
		if !f.down {
			return fails(after, unknown|certain)
		}
		if before == mustAbort {
			return fails(before, neverSent|certain|abortable)
		}
		return fails(before, neverSent|certain)
	}
}

// commitRefused: the commit of a session that only it can end.
func commitRefused(f fault) want {
	switch kind := endKind(f.code); {
	case kind == endDenied && f.first == noFirst:
		return fails(mustAbort, abortable|notCommitted)
	case kind == endOther, kind == endDenied:
		return fails(committing, unknown)
	case f.first == firstLost && (kind == endNot || kind == endAsked): // found to be committed
		return ok(isReady)
	case f.first == firstLost && f.told:
		return ok(isReady)
	case f.first == firstLost:
		return ok(dead)
	case kind == endLost && f.first == firstCut:
		return fails(dead, fatal|unknown, txnsession.ErrOutcomeLost)
	case f.first == firstCut:
		return fails(committing, unknown)
	case kind == endNot, kind == endAsked:
		return fails(mustAbort, abortable|notCommitted)
	case kind == endFenced:
		return fails(dead, fatal|fenced|notCommitted)
	}
	return fails(dead, fatal|notCommitted)
}

// preparedCommitRefused: a commit that another process may have ended. done is
// the state once it is found to be committed.
func preparedCommitRefused(done txnsession.State) func(fault) want {
	return func(f fault) want {
		switch kind := endKind(f.code); {
		case kind == endOther, kind == endDenied:
			return fails(committing, unknown)
		case f.first == firstLost && (kind == endNot || kind == endAsked || f.told || done == closed):
			return ok(done)
		case f.first == firstLost:
			return ok(dead)
		case kind == endLost:
			return fails(dead, fatal|unknown, txnsession.ErrOutcomeLost)
		}
		return fails(committing, unknown)
	}
}

// abortRefused: nothing of the transaction will be visible, in any case.
func abortRefused(f fault) want {
	switch kind := endKind(f.code); {
	case (kind == endNot || kind == endAsked || kind == endFenced && f.told) && f.first == firstLost:
		return ok(isReady)
	case kind == endFenced:
		return fails(dead, fatal|fenced|notCommitted)
	case kind == endLost:
		return fails(dead, fatal|notCommitted)
	}
	return fails(aborting, unknown|notCommitted)
}

// preparedAbortRefused: an abort of what another process may have committed.
func preparedAbortRefused(done txnsession.State) func(fault) want {
	return func(f fault) want {
		switch kind := endKind(f.code); {
		case (kind == endNot || kind == endAsked || kind == endFenced && f.told) && f.first == firstLost:
			return ok(done)
		case (kind == endFenced || kind == endLost) && f.first == firstLost && done == closed:
			return ok(done)
		case kind == endFenced && f.first == firstLost:
			return fails(dead, fatal|fenced|notCommitted)
		case kind == endLost && f.first == firstLost:
			return fails(dead, fatal|notCommitted)
		case kind == endLost:
			return fails(dead, fatal|unknown, txnsession.ErrOutcomeLost)
		}
		return fails(aborting, unknown)
	}
}

// endKinds are the answers to an EndTxn that a session reads closer.
type endKinds uint8

const (
	endOther  endKinds = iota
	endNot             // this request did not end it
	endAsked           // the broker asks for an abort
	endDenied          // no access: nothing was done
	endFenced          // a newer epoch is known
	endLost            // the id is forgotten
)

func endKind(code int16) endKinds {
	switch code {
	case kerr.InvalidTxnState.Code:
		return endNot
	case kerr.TransactionAbortable.Code:
		return endAsked
	case kerr.TransactionalIDAuthorizationFailed.Code:
		return endDenied
	case kerr.ProducerFenced.Code, kerr.InvalidProducerEpoch.Code:
		return endFenced
	case kerr.InvalidProducerIDMapping.Code:
		return endLost
	}
	return endOther
}

// elsewhere: the call is not one of the cell's session.
func elsewhere(of func(fault) want) func(fault) want {
	return func(f fault) want {
		w := of(f)
		w.inError, w.state = w.state.String(), prepared
		return w
	}
}

func elsewhereFails(state txnsession.State) func(fault) want {
	return func(fault) want {
		w := fails(state, 0)
		w.inError = noSession
		return w
	}
}

// flushCut: the participant goes on when Commit is called again.
func flushCut(fault) want {
	w := fails(inTxn, neverSent)
	w.other = true
	return w
}

// strange: a code that kgo does not know is told as UNKNOWN_SERVER_ERROR, which
// is asked again.
func strange(passed want, refused func(fault) want) func(fault) want {
	return func(f fault) want {
		if f.code == strangeCode {
			return passed
		}
		return refused(f)
	}
}

// negotiated: kgo asks again with a lower version.
func negotiated(passed want, refused func(fault) want) func(fault) want {
	return func(f fault) want {
		if f.code == kerr.UnsupportedVersion.Code {
			return passed
		}
		return strange(passed, refused)(f)
	}
}

// witnessRefused: a witness that nobody may look at is taken for what the
// coordinator says it is.
func witnessRefused(f fault) want {
	switch f.row.Class {
	case transport.ClassDenied, transport.ClassUnsupported:
		return ok(closed)
	}
	return fails(prepared, neverSent)
}

// leaderGone: the leader is not asked again, so that nothing tells when the
// caller has waited long enough.
func leaderGone(f fault) bool {
	return f.name == "refused" || f.end != endNever && f.row != nil && f.row.Class == transport.ClassRefresh
}

// flushRefused: what a participant reports, by the rows of Produce.
func flushRefused(f fault) want {
	w := workRefused(kmsg.Produce)(f)
	w.facts |= neverSent
	return w
}
