package faultnet_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/internal/faultnet"
)

// A commit is applied, its answer lost: the client has to ask again.
func Example() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "topic"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	nw := faultnet.New()
	defer nw.Close()
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(cluster.ListenAddrs()...),
		kgo.Dialer(nw.Dial),
		kgo.TransactionalID("id"),
		kgo.DefaultProduceTopic("topic"),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cl.Close()

	inj := nw.Inject(faultnet.Fault{
		Key:    int16(kmsg.EndTxn),
		Node:   faultnet.Any,
		Action: faultnet.CutAfter,
	})
	ctx := context.Background()
	if err := cl.BeginTransaction(); err != nil {
		fmt.Println(err)
		return
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("value")).FirstErr(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("commit:", cl.EndTransaction(ctx, kgo.TryCommit))
	fmt.Println("faults met:", inj.Hits())
	for _, r := range nw.Log() {
		if r.Key != int16(kmsg.EndTxn) {
			continue
		}
		req, err := r.Decode()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("EndTxn commit=%t: %v served=%t answered=%t\n",
			req.(*kmsg.EndTxnRequest).Commit, r.Action, r.Served, r.Answered)
	}
	// Output:
	// commit: <nil>
	// faults met: 1
	// EndTxn commit=true: CutAfter served=true answered=false
	// EndTxn commit=true: none served=true answered=true
}
