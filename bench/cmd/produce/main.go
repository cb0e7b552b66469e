// Command produce measures transactions of a ktxn producer: large ones back to
// back, or the latency of those with one record.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/bench/report"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/producer"
)

func main() {
	brokers := flag.String("brokers", "127.0.0.1:41092", "bootstrap servers")
	topic := flag.String("topic", "", "topic (default bulkSIZE, or lat)")
	mode := flag.String("mode", "bulk", "bulk or lat")
	size := flag.Int("size", 100, "bytes of a value")
	n := flag.Int("n", 1_000_000, "records, or in lat transactions")
	comp := flag.String("comp", "none", "none, lz4 or zstd")
	txn := flag.Int("txn", 10_000, "records of a transaction")
	flag.Parse()
	if *topic == "" {
		*topic = map[string]string{"bulk": fmt.Sprintf("bulk%d", *size), "lat": "lat"}[*mode]
	}
	if err := run(*brokers, *topic, *mode, *size, *n, *comp, *txn); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run(brokers, topic, mode string, size, n int, comp string, perTxn int) error {
	codec, ok := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}[comp]
	if !ok {
		return fmt.Errorf("unknown compression %q", comp)
	}
	values, err := payload(size)
	if err != nil {
		return err
	}
	nc, err := netclient.New(kgo.SeedBrokers(strings.Split(brokers, ",")...))
	if err != nil {
		return err
	}
	defer nc.Close()
	p, err := producer.NewTransactional(nc, fmt.Sprintf("bench-%d-%d", os.Getpid(), time.Now().UnixNano()),
		kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec))
	if err != nil {
		return err
	}
	ctx := context.Background()
	defer p.Close(ctx)
	if err := p.Initialize(ctx); err != nil {
		return err
	}
	var bad atomic.Int64
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			bad.Add(1)
		}
	}
	sent := 0
	transaction := func(records int) error {
		if err := p.Begin(ctx); err != nil {
			return err
		}
		for range records {
			p.Produce(ctx, &kgo.Record{Value: values[sent%len(values)]}, promise)
			sent++
		}
		return p.Commit(ctx)
	}
	warm := 1
	if mode == "lat" {
		warm = 100
	}
	for range warm {
		if err := transaction(1); err != nil {
			return err
		}
	}
	r := report.Begin()
	extra := map[string]any{}
	if mode == "lat" {
		took := make([]time.Duration, n)
		for i := range took {
			began := time.Now()
			if err := transaction(1); err != nil {
				return err
			}
			took[i] = time.Since(began)
		}
		extra = report.Percentiles(took)
	} else {
		for left := n; left > 0; left -= perTxn {
			if err := transaction(min(left, perTxn)); err != nil {
				return err
			}
		}
	}
	extra["bad"] = bad.Load()
	return r.End(fmt.Sprintf("%s/ktxn/%s/%d", mode, comp, size), n, size, extra)
}

// payload returns the values of payload-SIZE.bin in the working folder if there
// is one, which other programs may use too; else random ones.
func payload(size int) ([][]byte, error) {
	b, err := os.ReadFile(fmt.Sprintf("payload-%d.bin", size))
	if err != nil {
		b = make([]byte, size*1000)
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range b {
			b[i] = "abcdefghijklmnop {}\":,0123456789"[rng.IntN(32)]
		}
	}
	var out [][]byte
	for ; len(b) >= size; b = b[size:] {
		out = append(out, b[:size:size])
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the payload has no value of %d bytes", size)
	}
	return out, nil
}
