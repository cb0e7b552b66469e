package examples_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/ktxn/ktxn/internal/examplekit"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// readme is the program of the README.
func readme(ctx context.Context, brokers string) error {
	nc, err := netclient.New(kgo.SeedBrokers(brokers)) // shared by any number of sessions
	if err != nil {
		return err
	}
	defer nc.Close()
	session, err := txnsession.New(nc, "orders-0")
	if err != nil {
		return err
	}
	defer session.Close(ctx) // aborts what is still open
	orders, err := producer.New(session, kgo.DefaultProduceTopic("orders"))
	if err != nil {
		return err
	}
	if err := session.Initialize(ctx); err != nil { // fences the last owner of orders-0
		return err
	}
	if err := session.Begin(ctx); err != nil {
		return err
	}
	orders.Produce(ctx, kgo.StringRecord("two coffees"), nil)
	orders.Produce(ctx, kgo.StringRecord("one cake"), nil)
	return session.Commit(ctx) // sends them all first; nil: committed
}

func Example() {
	ctx := context.Background()
	cluster, err := examplekit.Open(ctx, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	if err := cluster.CreateTopics(ctx, 1, nil, "orders"); err != nil {
		fmt.Println(err)
		return
	}
	if err := readme(ctx, strings.Split(cluster.Brokers(), ",")[0]); err != nil {
		fmt.Println(err)
		return
	}
	records, err := cluster.ReadCommitted(ctx, "orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range records {
		fmt.Println(string(r.Value))
	}
	// Output:
	// two coffees
	// one cake
}

// TestReadmeHasThisProgram keeps the README's code what is compiled here.
func TestReadmeHasThisProgram(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "```go\n")
	require.True(t, found, "the README has no Go code")
	code, _, _ := strings.Cut(rest, "```")
	here, err := os.ReadFile("readme_test.go")
	require.NoError(t, err)
	require.Contains(t, string(here), code)
}
