package netclient_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/netclient"
)

// One client serves any number of sessions.
func ExampleNew() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()

	nc, err := netclient.New(
		kgo.SeedBrokers(cluster.ListenAddrs()...),
		kgo.ClientID("payments"),
		netclient.CoordinatorLanes(2),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()

	v2, err := nc.Supports(context.Background(), netclient.TransactionsV2)
	fmt.Println(v2, err)
	// Output: true <nil>
}

// An option that belongs to a producer is refused by name.
func ExampleNew_misplacedOption() {
	_, err := netclient.New(kgo.TransactionalID("orders"))
	fmt.Println(err)
	// Output: option 1: kgo.ProducerOpt given to netclient.New: producer options belong to producer.New
}

// The settings of a kgo client, but not its group.
func ExampleFromClient() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(cluster.ListenAddrs()...),
		kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer consumer.Close()

	nc, err := netclient.FromClient(consumer)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	fmt.Println(nc.Ping(context.Background()))
	// Output: <nil>
}
