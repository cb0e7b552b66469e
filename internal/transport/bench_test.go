package transport_test

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/transport"
)

func benchClient(b *testing.B) *transport.Client {
	b.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(cluster.Close)
	c, err := transport.New(transport.Options{
		CoordinatorLanes: 1, ProduceLanes: 1,
		Kgo: []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	return c
}

func BenchmarkCachedTopic(b *testing.B) {
	c := benchClient(b)
	if _, err := c.Topic(context.Background(), "t"); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if c.CachedTopic("t") == nil {
				b.Error("gone")
			}
		}
	})
}

// What the lane costs, beside the same request handed to kgo.
func BenchmarkProduce(b *testing.B) {
	c := benchClient(b)
	done := make(chan error, 1)
	b.Run("lane", func(b *testing.B) {
		lane := c.ProduceLane()
		b.ReportAllocs()
		for b.Loop() {
			lane.Produce(0, produceReq("t", 0), nil, func(_ kmsg.Response, _ bool, err error) { done <- err })
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("kgo", func(b *testing.B) {
		to := c.LookupClient().Broker(0)
		b.ReportAllocs()
		for b.Loop() {
			go func() {
				_, err := to.Request(context.Background(), produceReq("t", 0))
				done <- err
			}()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
	})
}
