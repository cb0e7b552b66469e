package transport

import "github.com/twmb/franz-go/pkg/kmsg"

// ProduceLane is one kgo client that carries Produce.
type ProduceLane struct{ c *Client }

// ProduceLane returns the next produce lane, in turn.
func (c *Client) ProduceLane() *ProduceLane { return &ProduceLane{c} }

// Produce hands req to the connection of node and returns at once.
func (l *ProduceLane) Produce(node int32, req kmsg.Request, written func(), done func(resp kmsg.Response, maybeSent bool, err error)) {
}
