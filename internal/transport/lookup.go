package transport

import (
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/wire"
)

const (
	maxLookups    = 1000 // ids in one FindCoordinator
	singleLookups = 16   // requests at once where one id a request is the rule
	manyLookups   = 4    // version of FindCoordinator that takes many ids
)

// ask sends look-ups until none is queued.
func (d *directory) ask() {
	for ids := d.take(); len(ids) > 0; ids = d.take() {
		rest := d.askFor(ids)
		if len(rest) == 0 {
			continue
		}
		// The broker is older than Kafka 3.0 and answered for the first id.
		var singles sync.WaitGroup
		slots := make(chan struct{}, singleLookups)
		for _, id := range rest {
			slots <- struct{}{}
			singles.Go(func() {
				defer func() { <-slots }()
				d.askFor([]string{id})
			})
		}
		singles.Wait()
	}
}

// askFor sends one FindCoordinator, and settles what it answers. It returns
// the ids that the broker was too old to be asked for.
func (d *directory) askFor(ids []string) (rest []string) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = d.kind
	req.CoordinatorKey = ids[0]  // below v4
	req.CoordinatorKeys = ids    // from v4 on
	resp, err := d.c.askAny(req) // which of the two is known afterwards
	if err != nil {
		for _, id := range ids {
			d.settle(id, -1, err)
		}
		return nil
	}
	if resp.Version < manyLookups {
		d.settleCode(ids[0], resp.NodeID, resp.ErrorCode, resp.ErrorMessage)
		return ids[1:]
	}
	answered := make(map[string]*kmsg.FindCoordinatorResponseCoordinator, len(resp.Coordinators))
	for i := range resp.Coordinators {
		answered[resp.Coordinators[i].Key] = &resp.Coordinators[i]
	}
	for _, id := range ids {
		if a := answered[id]; a != nil {
			d.settleCode(id, a.NodeID, a.ErrorCode, a.ErrorMessage)
		} else {
			d.settle(id, -1, notPlaced(id))
		}
	}
	return nil
}

func (d *directory) settleCode(id string, node int32, code int16, msg *string) {
	switch {
	case code != 0:
		text := ""
		if msg != nil {
			text = *msg
		}
		d.settle(id, -1, &lookupError{d.c.classify(keyFindCoordinator, code).Class, true, codeError(code, text)})
	case node < 0:
		d.settle(id, -1, notPlaced(id))
	default:
		d.settle(id, node, nil)
	}
}

// askAny sends one FindCoordinator to any broker. An error is a *lookupError
// with its class, or kgo.ErrClientClosed.
func (c *Client) askAny(req *kmsg.FindCoordinatorRequest) (*kmsg.FindCoordinatorResponse, error) {
	cs := c.lookup.conns
	cl, err := cs.client()
	if err != nil {
		return nil, err
	}
	t := wire.Track(req)
	if req.CoordinatorType == coordinatorTxn {
		t.RequireVersion(1) // v0 asks for a group whatever the type says
	}
	resp, err := wire.Send(c.ctx, cs.broker(cl, -1), t)
	if err == nil {
		return resp.(*kmsg.FindCoordinatorResponse), nil
	}
	if c.ctx.Err() != nil || errors.Is(err, kgo.ErrClientClosed) {
		return nil, kgo.ErrClientClosed
	}
	class := ClassRetriable
	if !t.Written() {
		class, err = c.whyNotSent(c.ctx, -1, keyFindCoordinator, err)
	}
	cs.next()
	return nil, &lookupError{class, t.Written(), err}
}
