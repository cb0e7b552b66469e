package txnsession_test

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/transport"
)

// fault is what meets the request of a scenario.
type fault struct {
	name   string
	what   []faultnet.Fault // in this order; the scenario says which requests
	down   bool             // no broker can be reached
	redial bool             // the connections are gone and the next dial is refused
	end    endWhen          // when the caller has waited long enough
	left   bool             // a try may have arrived and has no answer that decides
	late   bool             // copies are under way until the next transaction
	twice  bool             // the broker sees it twice
	first  firstTry         // what became of a try before the answer
	told   bool             // the coordinator remembers how a transaction ended

	code int16
	row  *transport.Row // of the retry table, that the code stands for
}

// endWhen is when the context of the call ends.
type endWhen uint8

const (
	endNever   endWhen = iota
	endAtRetry         // the first try has failed
	endAtHit           // the first try, or its answer, is being held
)

// firstTry is what became of the try before the one that was answered.
type firstTry uint8

const (
	noFirst   firstTry = iota
	firstLost          // applied, and its answer lost
	firstCut           // it never arrived, which the client cannot know
)

// final tells an answer after which the request is not sent again.
func (f fault) final() bool {
	return f.row != nil && f.row.Class != transport.ClassNone && !f.row.Class.Retries()
}

// networkFaults are those that have no code. What they hold is held until the
// cell lifts the fault.
func networkFaults() []fault {
	one := func(a faultnet.Action) []faultnet.Fault { return []faultnet.Fault{{Action: a}} }
	return []fault{
		{name: "refused", what: one(faultnet.Refuse), left: true},
		{name: "cut before", what: one(faultnet.CutBefore), left: true},
		{name: "cut after", what: one(faultnet.CutAfter), left: true},
		{name: "cut, arrives late", what: one(faultnet.CutLate), left: true, late: true},
		{name: "duplicated", what: one(faultnet.Duplicate), twice: true},
		{name: "redialled", what: []faultnet.Fault{{Key: faultnet.Any, Action: faultnet.Refuse}}, redial: true},

		{name: "refused, out of time", what: one(faultnet.Refuse), left: true, end: endAtRetry},
		{name: "cut before, out of time", what: one(faultnet.CutBefore), left: true, end: endAtRetry},
		{name: "cut after, out of time", what: one(faultnet.CutAfter), left: true, end: endAtRetry},
		{name: "cut, arrives late, out of time", what: one(faultnet.CutLate), left: true, late: true, end: endAtRetry},
		{name: "answer delayed, out of time", what: one(faultnet.Delay), left: true, end: endAtHit},
		{name: "request delayed, out of time", what: one(faultnet.DelayRequest), left: true, end: endAtHit},
		{name: "unreachable, out of time", down: true, end: endAtRetry},
	}
}

// codeFaults are the answers with a code of one row.
func codeFaults(row transport.Row, code int16) []fault {
	name := codeName(code)
	answer := func(a faultnet.Action) []faultnet.Fault { return []faultnet.Fault{{Action: a, Code: code}} }
	if row.Class == transport.ClassNone { // the code says that it was applied
		return []fault{{name: "applied, answered " + name, what: answer(faultnet.AnswerAfter), code: code, row: &row}}
	}
	fs := []fault{{name: "answered " + name, what: answer(faultnet.Answer), left: row.Open}}
	if row.Open {
		fs = append(fs, fault{name: "applied, answered " + name, what: answer(faultnet.AnswerAfter), left: true})
	}
	if row.Class.Retries() {
		fs = append(fs, fault{name: "answered " + name + ", out of time", what: answer(faultnet.Answer), left: row.Open, end: endAtRetry})
	}
	for i := range fs {
		fs[i].code, fs[i].row = code, &row
	}
	return fs
}

// secondFaults are answers with a code after a try that has none: what is open
// then must stay open, whatever comes later.
func secondFaults(row transport.Row, code int16) []fault {
	name := codeName(code)
	var fs []fault
	for first, action := range map[firstTry]faultnet.Action{firstLost: faultnet.CutAfter, firstCut: faultnet.CutBefore} {
		f := fault{
			name:  map[firstTry]string{firstLost: "lost, then answered " + name, firstCut: "cut, then answered " + name}[first],
			what:  []faultnet.Fault{{Action: action}, {Action: faultnet.Answer, Code: code}},
			first: first, left: true, code: code, row: &row,
		}
		if row.Class.Retries() {
			f.end, f.name = endAtRetry, f.name+", out of time"
		}
		fs = append(fs, f)
	}
	return fs
}

func codeName(code int16) string {
	if e := kerr.TypedErrorForCode(code); e != nil && e.Code == code {
		return e.Message
	}
	return fmt.Sprintf("code %d", code)
}

// strangeCode is one that no client knows.
const strangeCode = 9999

// faultsOf returns the faults of a scenario: those of the network, and at least
// one for each row of the retry table, or, where the same request has a scenario
// with all of them, for each kind of row.
func faultsOf(sc *scenario) []fault {
	fs := networkFaults()
	seen := make(map[transport.Row]bool)
	for _, row := range transport.Rows() {
		kind := transport.Row{Class: row.Class, Open: row.Open}
		if row.Key != int16(sc.key) || sc.brief && row.Class.Retries() && seen[kind] {
			continue
		}
		seen[kind] = true
		codes := []int16{row.Code}
		if row.Rest {
			codes = []int16{unlisted(sc.key), strangeCode}
		}
		if row.Rest && sc.brief {
			codes = codes[:1]
		}
		for _, code := range codes {
			fs = append(fs, codeFaults(row, code)...)
			if sc.seconds {
				fs = append(fs, secondFaults(row, code)...)
			}
		}
	}
	kept := fs[:0]
	for _, f := range fs {
		if f.end != endNever && sc.cut == nil || sc.skip != nil && sc.skip(f) {
			continue
		}
		kept = append(kept, f)
	}
	return kept
}

// partForReal is the part of the table that runs against real brokers: what they do
// with a lost answer, a copy, a slow answer, and what they remember of a
// transaction whose end was answered as if it were another's.
func partForReal(_ *scenario, f fault) bool {
	switch f.name {
	case "cut after", "duplicated", "answer delayed, out of time":
		return true
	}
	return f.first == firstLost && (f.code == kerr.ProducerFenced.Code || f.code == kerr.InvalidTxnState.Code)
}

// unlisted returns a code of Kafka's that the retry table has no row for.
func unlisted(key kmsg.Key) int16 {
	for _, e := range []*kerr.Error{kerr.InvalidReplicationFactor, kerr.InvalidPartitions} {
		if rowOf(key, e.Code).Rest {
			return e.Code
		}
	}
	return strangeCode
}
