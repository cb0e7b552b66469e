package kafkatest_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

// ownerEnv makes the test binary an owner of a cluster that waits to be killed.
const ownerEnv = "KAFKATEST_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerEnv) != "" {
		c, err := kafkatest.Start(context.Background(), kafkatest.Latest())
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("owner", c.Pid(1), c.Dir())
		select {}
	}
	goleak.VerifyTestMain(kafkatest.Main(m))
}
