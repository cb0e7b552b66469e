package proof_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(kafkatest.Main(m)) }
