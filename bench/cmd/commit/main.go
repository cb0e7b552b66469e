// Command commit measures a ktxn Committer on prepared transactions.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ktxn/ktxn/bench/report"
	"github.com/ktxn/ktxn/netclient"
	"github.com/ktxn/ktxn/txnsession"
)

// counter counts the requests that leave, by name, and the connections.
type counter struct {
	mu    sync.Mutex
	byKey map[string]int
	conns int
}

func (c *counter) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byKey[kmsg.NameForKey(key)]++
}

func (c *counter) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.conns++
	}
}

func main() {
	brokers := flag.String("brokers", "127.0.0.1:41092", "bootstrap servers")
	in := flag.String("in", "txns.txt", "file of prepared transactions")
	inFlight := flag.Int("inflight", 256, "transactions in flight")
	lanes := flag.Int("lanes", 4, "coordinator lanes")
	flag.Parse()
	if err := run(*brokers, *in, *inFlight, *lanes); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run(brokers, in string, inFlight, lanes int) error {
	txns, err := read(in)
	if err != nil {
		return err
	}
	r := report.Begin()
	count := &counter{byKey: make(map[string]int)}
	nc, err := netclient.New(kgo.SeedBrokers(strings.Split(brokers, ",")...), kgo.WithHooks(count), netclient.CoordinatorLanes(lanes))
	if err != nil {
		return err
	}
	defer nc.Close()
	c, err := txnsession.NewCommitter(nc, txnsession.MaxInFlight(inFlight))
	if err != nil {
		return err
	}
	if err := c.Commit(context.Background(), txns).FirstErr(); err != nil {
		return err
	}
	count.mu.Lock()
	defer count.mu.Unlock()
	total := 0
	for _, n := range count.byKey {
		total += n
	}
	return r.End("commit/ktxn", len(txns), 0, map[string]any{
		"requests": count.byKey, "connections": count.conns,
		"end_txn_per": float64(count.byKey["EndTxn"]) / float64(len(txns)), "requests_per": float64(total) / float64(len(txns)),
	})
}

func read(path string) ([]txnsession.PreparedTxn, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var txns []txnsession.PreparedTxn
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		p, err := parse(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(txns)+1, err)
		}
		txns = append(txns, p)
	}
	return txns, lines.Err()
}

// parse reads the text of a PreparedTxn, or "id producerID epoch".
func parse(line string) (txnsession.PreparedTxn, error) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return txnsession.ParsePreparedTxn(line)
	}
	id, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return txnsession.PreparedTxn{}, err
	}
	epoch, err := strconv.ParseInt(fields[2], 10, 16)
	if err != nil {
		return txnsession.PreparedTxn{}, err
	}
	return txnsession.PreparedTxn{TransactionalID: fields[0], ProducerID: id, ProducerEpoch: int16(epoch), TransactionVersion: -1}, nil
}
