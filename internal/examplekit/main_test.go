package examplekit_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/ktxn/ktxn/internal/examplekit"
)

func TestMain(m *testing.M) {
	if examplekit.IsChild() {
		child(os.Args[1])
		return
	}
	goleak.VerifyTestMain(m)
}

// child is what the processes do that TestChild starts.
func child(end string) {
	fmt.Println("child", end)
	switch end {
	case "dies":
		func() {
			defer fmt.Println("no deferred call runs")
			examplekit.Die()
		}()
	case "fails":
		fmt.Fprintln(os.Stderr, "the reason")
		os.Exit(2)
	case "waits":
		select {}
	}
}
