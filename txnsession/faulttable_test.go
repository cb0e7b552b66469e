package txnsession_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/internal/wire"
)

// TestFaultTable is the table of request by fault, under both rules: what the
// call returns, what state it leaves, what may be called next, and whether what
// was said of the transaction is what others see.
func TestFaultTable(t *testing.T) {
	for _, rules := range []int16{2, 0} {
		t.Run(fmt.Sprintf("transaction.version %d", rules), func(t *testing.T) {
			table(t, fakeBench(t, rules), nil)
		})
	}
}

// TestFaultTableCapped is the part of the table that goes over the network,
// where the user's version caps lead to the old rules on a cluster that has the
// new ones.
func TestFaultTableCapped(t *testing.T) {
	caps := kversion.Stable()
	caps.SetMaxKeyVersion(int16(kmsg.Produce), 11)
	table(t, cappedBench(t, kgo.MaxVersions(caps)), func(sc *scenario, f fault) bool {
		// Sessions do not ask what the caps have decided.
		return f.row == nil && sc.key != kmsg.ApiVersions && !(f.down && sc.key == kmsg.InitProducerID)
	})
}

// TestFaultTableOnKafka is a part of the table on real brokers, of both rules.
func TestFaultTableOnKafka(t *testing.T) {
	for _, b := range backends {
		if b.real == nil {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			c := kafkatest.Shared(t, *b.real)
			rules := int16(2)
			if b.old {
				rules = 0
			}
			bench := benchOn(t, c.Seeds(), rules)
			bench.real = true
			table(t, bench, partForReal)
		})
	}
}

// TestFaultTableIsComplete fails for a request that the retry table knows and
// no scenario sends, and for a row without a cell.
func TestFaultTableIsComplete(t *testing.T) {
	// What other packages send, or nobody without a KIP that no broker has.
	notOfSessions := map[int16]string{
		int16(kmsg.ListOffsets): "producers and the claim log",
		1083:                    "AddShareAcksToTxn of KIP-1310",
		1093:                    "TxnShareAcknowledge of KIP-1289",
	}
	faults := make(map[*scenario][]fault)
	for _, sc := range scenarios {
		faults[sc] = faultsOf(sc)
	}
	for _, row := range transport.Rows() {
		if _, ok := notOfSessions[row.Key]; ok {
			continue
		}
		name := fmt.Sprintf("%s, code %d, rest %t", kmsg.NameForKey(row.Key), row.Code, row.Rest)
		for _, rules := range []int16{2, 0} {
			sent, answered := false, false
			for _, sc := range scenarios {
				if int16(sc.key) != row.Key || !sc.under(rules) {
					continue
				}
				sent = true
				for _, f := range faults[sc] {
					answered = answered || f.row != nil && *f.row == row
				}
			}
			onlyOld := row.Key == int16(kmsg.AddPartitionsToTxn) || row.Key == int16(kmsg.AddOffsetsToTxn) ||
				row.Key == int16(kmsg.DescribeProducers)
			assert.Equal(t, rules < 2 || !onlyOld, sent, "a scenario sends it under rules %d: %s", rules, name)
			assert.Equal(t, sent, answered, "a cell answers it under rules %d: %s", rules, name)
		}
	}
}

// atOnce is how many cells run at a time. They wait more than they work.
const atOnce = 8

func fastBackoff(int) time.Duration { return time.Millisecond }

func keyName(key kmsg.Key) string {
	if key == wire.TxnHeartbeatKey {
		return "TxnHeartbeat"
	}
	return key.Name()
}

// table runs the scenarios of the bench's rules against their faults, or those
// that only picks, and then has the bench judge.
func table(t *testing.T, b *bench, only func(*scenario, fault) bool) {
	t.Helper()
	slots := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	for _, sc := range scenarios {
		if !sc.under(b.rules) {
			continue
		}
		for _, f := range faultsOf(sc) {
			if only != nil && !only(sc, f) {
				continue
			}
			f.told = b.real // kfake only knows that there is nothing open
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				t.Run(fmt.Sprintf("%s/%s/%s", keyName(sc.key), sc.name, f.name), func(t *testing.T) {
					newCell(t, b, sc, f).run()
				})
			})
		}
	}
	running.Wait()
	if !t.Failed() {
		b.judge(t)
	}
}
