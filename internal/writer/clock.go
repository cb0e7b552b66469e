package writer

import (
	"sync/atomic"
	"time"
)

// tick is the resolution of record timestamps that the writer sets. Kafka's is
// the same.
const tick = time.Millisecond

// clock is a clock that is cheap to read. Reading the system's for each record
// took a sixth of the time that a small record takes. It ticks only while it is
// being read.
type clock struct {
	millis atomic.Int64 // 0: not ticking
	read   atomic.Bool  // since the last tick
}

func (c *clock) now() time.Time {
	if ms := c.millis.Load(); ms != 0 {
		if !c.read.Load() {
			c.read.Store(true)
		}
		return time.UnixMilli(ms)
	}
	now := time.Now().Truncate(tick)
	if c.millis.CompareAndSwap(0, now.UnixMilli()) {
		time.AfterFunc(tick, c.tick)
	}
	return now
}

func (c *clock) tick() {
	if !c.read.Swap(false) {
		c.millis.Store(0)
		return
	}
	c.millis.Store(time.Now().UnixMilli())
	time.AfterFunc(tick, c.tick)
}
