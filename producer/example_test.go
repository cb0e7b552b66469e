package producer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

// Two records in one transaction of a session. Commit flushes the producer, and
// fails if a record has failed: no promise has to be looked at.
func Example() {
	cluster, nc, err := shop()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	defer nc.Close()

	ctx := context.Background()
	s, err := txnsession.New(nc, "shop-0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)
	p, err := producer.New(s)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close(ctx)

	if err := errors.Join(s.Initialize(ctx), s.Begin(ctx)); err != nil {
		fmt.Println(err)
		return
	}
	p.Produce(ctx, &kgo.Record{Topic: "orders", Value: []byte("order 1")}, nil)
	p.Produce(ctx, &kgo.Record{Topic: "payments", Value: []byte("payment of order 1")}, nil)
	fmt.Println("commit:", s.Commit(ctx))
	// Output: commit: <nil>
}

// A producer with a session of its own, for those who need no more.
func ExampleNewTransactional() {
	cluster, nc, err := shop()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	defer nc.Close()

	ctx := context.Background()
	p, err := producer.NewTransactional(nc, "shop-0", kgo.DefaultProduceTopic("orders"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close(ctx)

	if err := errors.Join(p.Initialize(ctx), p.Begin(ctx)); err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range p.ProduceSync(ctx, &kgo.Record{Value: []byte("order 1")}, &kgo.Record{Value: []byte("order 2")}) {
		fmt.Printf("%s at offset %d: %v\n", r.Record.Value, r.Record.Offset, r.Err)
	}
	fmt.Println("commit:", p.Commit(ctx))
	// Output:
	// order 1 at offset 0: <nil>
	// order 2 at offset 1: <nil>
	// commit: <nil>
}

// shop is a cluster with the topics of the examples, in this process.
func shop() (*kfake.Cluster, *netclient.Client, error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "payments"))
	if err != nil {
		return nil, nil, err
	}
	nc, err := netclient.New(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		cluster.Close()
	}
	return cluster, nc, err
}
