package txnsession_test

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
	"github.com/ktxn/ktxn/internal/transport"
	"github.com/ktxn/ktxn/internal/wire"
)

// beating: an open transaction on a cluster whose brokers announce TxnHeartbeat.
func beating(c *cell, ctx context.Context) {
	c.net.RegisterRequest(func() kmsg.Request { return wire.NewTxnHeartbeatRequest() })
	c.net.Inject(faultnet.Fault{
		Key: int16(kmsg.ApiVersions), Node: faultnet.Any, Times: faultnet.Forever, Action: faultnet.Rewrite,
		Edit: func(_ kmsg.Request, r kmsg.Response) {
			v := r.(*kmsg.ApiVersionsResponse)
			key := kmsg.NewApiVersionsResponseApiKey()
			key.ApiKey = wire.TxnHeartbeatKey
			v.ApiKeys = append(v.ApiKeys, key)
			f := kmsg.NewApiVersionsResponseFinalizedFeature()
			f.Name, f.MinVersionLevel, f.MaxVersionLevel = "ktxn.txn.heartbeat", 1, 1
			v.FinalizedFeatures = append(v.FinalizedFeatures, f)
			v.FinalizedFeaturesEpoch = max(v.FinalizedFeaturesEpoch, 1)
		},
	})
	open(c, ctx)
}

// beatsAnswered answers the heartbeats that the fault lets through: no broker
// knows them.
func beatsAnswered(c *cell) {
	c.net.Inject(faultnet.Fault{
		Key: wire.TxnHeartbeatKey, Node: faultnet.Any, Times: faultnet.Forever, Action: faultnet.Answer,
	})
}

func callHeartbeat(c *cell, ctx context.Context) error { return c.s.Heartbeat(ctx) }

func beatRefused(f fault) want {
	switch f.row.Class {
	case transport.ClassFenced:
		return fails(dead, fatal|fenced|notCommitted)
	case transport.ClassFatal:
		return fails(dead, fatal|notCommitted)
	}
	return fails(inTxn, 0)
}

func beatCut(f fault) want {
	if f.down {
		return fails(inTxn, neverSent)
	}
	return fails(inTxn, 0)
}

// needsBroker: faults that deliver the request to a broker.
func needsBroker(f fault) bool {
	if f.row != nil || f.down {
		return false
	}
	switch f.what[0].Action {
	case faultnet.Refuse, faultnet.CutBefore:
		return false
	}
	return true
}
