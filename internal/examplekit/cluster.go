package examplekit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Cluster is where an example runs: brokers that exist, or one inside the
// process. Its methods may be called by several goroutines at once.
type Cluster struct {
	seeds []string
	fake  *kfake.Cluster // nil: the brokers existed before
	admin *kadm.Client
	cl    *kgo.Client
}

// Open returns the cluster of brokers ("host:port,host:port") or, if that is
// empty, starts one inside the process, which other processes on the machine
// can reach as well. It answers once a broker does.
func Open(ctx context.Context, brokers string) (*Cluster, error) {
	c := &Cluster{seeds: strings.Split(brokers, ",")}
	if brokers == "" {
		fake, err := kfake.NewCluster(kfake.NumBrokers(3))
		if err != nil {
			return nil, fmt.Errorf("starting a cluster in the process: %w", err)
		}
		c.fake, c.seeds = fake, fake.ListenAddrs()
	}
	var err error
	if c.cl, err = kgo.NewClient(c.Opts()...); err == nil {
		err = c.cl.Ping(ctx)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("no broker answers at %s: %w", c.Brokers(), err)
	}
	c.admin = kadm.NewClient(c.cl)
	return c, nil
}

// Embedded reports whether the cluster runs inside the process.
func (c *Cluster) Embedded() bool { return c.fake != nil }

// Brokers returns the addresses as Open takes them.
func (c *Cluster) Brokers() string { return strings.Join(c.seeds, ",") }

// Opts are the options by which any kgo client, or a netclient, reaches the
// cluster. Each call returns a slice of its own.
func (c *Cluster) Opts() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(c.seeds...),
		// The topics were made a moment ago: kgo's default of 5 s before it
		// asks for their leaders again is long for an example.
		kgo.MetadataMinAge(50 * time.Millisecond),
	}
}

// Admin is a client for the administration of the cluster; Close closes it.
func (c *Cluster) Admin() *kadm.Client { return c.admin }

// Close frees the clients and ends the cluster, if it is the process's own.
func (c *Cluster) Close() {
	if c.cl != nil {
		c.cl.Close()
	}
	if c.fake != nil {
		c.fake.Close()
	}
}

// Unique returns prefix with an end that no other run has.
func Unique(prefix string) string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + "-" + hex.EncodeToString(b[:])
}

// CreateTopics makes topics, with the broker's default of replicas.
func (c *Cluster) CreateTopics(ctx context.Context, partitions int32, configs map[string]*string, topics ...string) error {
	made, err := c.admin.CreateTopics(ctx, partitions, -1, configs, topics...)
	if err != nil {
		return err
	}
	if err := made.Error(); err != nil {
		return fmt.Errorf("creating %s: %w", strings.Join(topics, ", "), err)
	}
	return c.awaitLeaders(ctx, topics)
}

// awaitLeaders waits until the topics can be written to: a broker answers the
// creation before every other has heard of it.
func (c *Cluster) awaitLeaders(ctx context.Context, topics []string) error {
	for {
		details, err := c.admin.ListTopics(ctx, topics...)
		if err == nil {
			err = details.Error()
		}
		if err == nil {
			err = errors.Join(noLeaders(details)...)
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, kerr.LeaderNotAvailable) {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func noLeaders(details kadm.TopicDetails) []error {
	var errs []error
	details.EachPartition(func(p kadm.PartitionDetail) {
		if p.Err != nil {
			errs = append(errs, p.Err)
		} else if p.Leader < 0 {
			errs = append(errs, kerr.LeaderNotAvailable)
		}
	})
	return errs
}

// DeleteTopics removes topics. Those of a cluster inside the process go with it.
func (c *Cluster) DeleteTopics(ctx context.Context, topics ...string) error {
	if c.Embedded() {
		return nil
	}
	gone, err := c.admin.DeleteTopics(ctx, topics...)
	if err != nil {
		return err
	}
	return gone.Error()
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
