package kafkatest

import (
	"context"
	"fmt"
	"os"
	"time"
)

// lock waits for path's lock until ctx ends.
func lock(ctx context.Context, path string) (*os.File, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		f, err := tryLock(path)
		if f != nil || err != nil {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("kafkatest: waiting for %s: %w", path, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
