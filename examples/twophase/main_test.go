package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ktxn/ktxn/internal/examplekit"
	"github.com/ktxn/ktxn/internal/kafkatest"
)

func TestMain(m *testing.M) {
	if examplekit.IsChild() {
		main()
		return
	}
	goleak.VerifyTestMain(kafkatest.Main(m))
}
