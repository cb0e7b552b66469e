package transport

import (
	"math/rand/v2"
	"time"
)

// streak counts failures of one kind in a row, so that 500 answers of one kind
// don't slow down the first retry after another.
type streak struct {
	code int16
	n    int
}

func (s *streak) count(code int16) int {
	if s.n == 0 || s.code != code {
		*s = streak{code: code}
	}
	s.n++
	return s.n
}

// busyFirst is the first wait while the last transaction of an id ends, which
// takes a healthy broker a fraction of a millisecond.
const busyFirst = 500 * time.Microsecond

// defaultWait is the wait after the streak-th failure in a row with a code.
func (c *Client) defaultWait(key, code int16, streak int) time.Duration {
	if code != codeConcurrentTransactions {
		return c.backoff(streak)
	}
	if key == keyInitProducerID {
		return c.busyBackoff // here the broker aborts a transaction first
	}
	d := c.busyBackoff
	if shift := streak - 1; shift < 16 {
		d = min(d, busyFirst<<shift)
	}
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
