package producer_test

import (
	"context"
	"fmt"
	"log"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
	"github.com/ktxn/ktxn/txnsession"
)

// Two records in one transaction of a session. Commit flushes the producer, so
// that no promise has to be looked at: if one of them failed, so does Commit.
func Example() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "payments"))
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	ctx := context.Background()

	nc, err := netclient.New(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	s, err := txnsession.New(nc, "shop-0")
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	p, err := producer.New(s)
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close(ctx)

	if err := s.Initialize(ctx); err != nil {
		log.Fatal(err)
	}
	if err := s.Begin(ctx); err != nil {
		log.Fatal(err)
	}
	p.Produce(ctx, &kgo.Record{Topic: "orders", Value: []byte("order 1")}, nil)
	p.Produce(ctx, &kgo.Record{Topic: "payments", Value: []byte("payment of order 1")}, nil)
	if err := s.Commit(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("committed")
	// Output: committed
}

// A producer with a session of its own, for those who need no more.
func ExampleNewTransactional() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	ctx := context.Background()

	nc, err := netclient.New(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	p, err := producer.NewTransactional(nc, "shop-0", kgo.DefaultProduceTopic("orders"))
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close(ctx)

	if err := p.Initialize(ctx); err != nil {
		log.Fatal(err)
	}
	if err := p.Begin(ctx); err != nil {
		log.Fatal(err)
	}
	results := p.ProduceSync(ctx, &kgo.Record{Value: []byte("order 1")}, &kgo.Record{Value: []byte("order 2")})
	if err := results.FirstErr(); err != nil {
		log.Fatal(err)
	}
	if err := p.Commit(ctx); err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Printf("%s at offset %d\n", r.Record.Value, r.Record.Offset)
	}
	// Output:
	// order 1 at offset 0
	// order 2 at offset 1
}
