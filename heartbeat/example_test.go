package heartbeat_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ktxn/ktxn/heartbeat"
)

func ExampleStart() {
	fenced := errors.New("fenced by another process")
	beats := 0
	l := heartbeat.Start(context.Background(), time.Millisecond, time.Minute,
		func(context.Context) (time.Duration, error) {
			beats++
			switch beats {
			case 1:
				return 0, nil
			case 2:
				return 0, errors.New("connection refused")
			}
			return 0, heartbeat.Permanent(fenced)
		},
		heartbeat.OnMiss(func(missed int, _ time.Duration, err error) {
			fmt.Println("missed", missed, "because:", err)
		}))
	<-l.Done()
	fmt.Println("beats:", beats)
	fmt.Println("ended:", l.Err())
	// Output:
	// missed 1 because: connection refused
	// beats: 3
	// ended: fenced by another process
}
