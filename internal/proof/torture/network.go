package torture

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
)

// What may happen to which request on its way.
var (
	faultKeys = []kmsg.Key{
		kmsg.EndTxn, kmsg.EndTxn, kmsg.EndTxn, kmsg.Produce, kmsg.Produce, kmsg.InitProducerID, kmsg.TxnOffsetCommit,
		kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.DescribeTransactions, kmsg.FindCoordinator, kmsg.Metadata, kmsg.ApiVersions,
	}
	faultActions = []faultnet.Action{
		faultnet.Refuse, faultnet.CutBefore, faultnet.CutAfter, faultnet.CutLate, faultnet.Delay, faultnet.DelayRequest, faultnet.Duplicate,
	}
)

// network breaks something again and again until the time is up, one request
// each time.
func (r *run) network(until context.Context) error {
	rng := rand.New(rand.NewPCG(r.cfg.Seed, 1<<32))
	tick := time.NewTicker(r.cfg.FaultEvery)
	defer tick.Stop()
	var put []*faultnet.Injection
	met := func() {
		r.count(func(p *Report) {
			for _, inj := range put {
				p.Faults += inj.Hits()
			}
		})
	}
	defer func() {
		met()
		r.net.Reset()
	}()
	for {
		select {
		case <-until.Done():
			return nil
		case <-tick.C:
		}
		const kept = 100
		if len(put) == kept {
			met()
			put = put[:0]
			r.net.Reset() // which empties the log as well
		}
		put = append(put, r.net.Inject(faultnet.Fault{
			Key: int16(faultKeys[rng.IntN(len(faultKeys))]), Node: faultnet.Any,
			Action: faultActions[rng.IntN(len(faultActions))],
			Delay:  time.Duration(1+rng.IntN(1000)) * time.Millisecond,
			Skip:   rng.IntN(3),
		}))
	}
}
