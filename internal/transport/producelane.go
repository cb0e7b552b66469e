package transport

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/wire"
)

// ProduceLane is one kgo client that carries Produce. It is safe for
// concurrent use, but see Produce for the order of requests.
type ProduceLane struct {
	c     *Client
	conns *conns
}

// ProduceLane returns the next produce lane, in turn. A producer stays on it.
func (c *Client) ProduceLane() *ProduceLane {
	return c.produceLanes[(c.nextProduce.Add(1)-1)%uint32(len(c.produceLanes))]
}

// Produce hands req to the connection of node and returns at once. No context
// reaches the connection, where it would end the requests of others: a request
// ends by its answer, a network error or time-out, or Close.
//
// written is called at most once, when req has been encoded: req must not
// change from the call of Produce on, and what it holds may be used again only
// after done. done is called exactly once, with the answer or an error; if
// maybeSent is false not one byte of req left the process. Neither may block.
// Both are called from goroutines of the lane.
//
// Requests for a node keep their order if the next one is issued only after
// written or done of the one before.
func (l *ProduceLane) Produce(node int32, req kmsg.Request, written func(), done func(resp kmsg.Response, maybeSent bool, err error)) {
	running := l.c.spawn(func() {
		t := wire.Track(req)
		if written != nil {
			t.OnWritten(written)
		}
		resp, err := l.send(node, t)
		done(resp, t.Written(), err)
	})
	if !running {
		go done(nil, false, kgo.ErrClientClosed)
	}
}

func (l *ProduceLane) send(node int32, t wire.Tracked) (kmsg.Response, error) {
	cl, err := l.conns.client()
	if err != nil {
		return nil, err
	}
	resp, err := wire.Send(context.Background(), cl.Broker(int(node)), t)
	if err == nil {
		return resp, nil
	}
	if l.conns.isClosed() {
		return nil, kgo.ErrClientClosed
	}
	if !t.Written() {
		l.conns.refreshBrokers() // the node may have come back elsewhere
	}
	return nil, err
}
