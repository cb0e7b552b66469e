package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrShared is what a shared cluster answers to a call that would disturb the
// others who use it.
var ErrShared = errors.New("kafkatest: the cluster is shared: take one of your own to disturb its nodes")

var errClosed = errors.New("kafkatest: the cluster is closed")

// Cluster is a running Kafka. All methods may be called from several goroutines.
type Cluster struct {
	spec   Spec
	seeds  []string
	sec    *security // nil without Spec.Secure
	shared bool

	// Below: only for a cluster whose nodes this process runs.
	inst  *installation
	nodes []*node
	dir   string
	owner *os.File // the lock that keeps others from sweeping dir

	closeOnce sync.Once
}

// bootTime bounds the start of the nodes, downloads aside.
const bootTime = 2 * time.Minute

// Start brings up a cluster and returns when every node answers, all know each
// other, and the transaction, group and share coordinators are there. The first
// start of a version downloads it. ctx bounds the start only; after an error
// nothing is left running. Without Java or Maven it answers a [*MissingError].
func Start(ctx context.Context, spec Spec) (*Cluster, error) {
	spec, err := spec.check()
	if err != nil {
		return nil, err
	}
	inst, err := install(ctx, spec.Version)
	if err != nil {
		return nil, err
	}
	return launch(ctx, inst, spec)
}

// launch boots the nodes of an installed release, again on other ports if
// somebody else was faster to take one. jvm are more flags for each node.
func launch(ctx context.Context, inst *installation, spec Spec, jvm ...string) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	for try := 1; ; try++ {
		c, err := boot(ctx, inst, spec, jvm)
		if err == nil || try == 3 || ctx.Err() != nil || !strings.Contains(err.Error(), "Address already in use") {
			return c, err
		}
	}
}

func boot(ctx context.Context, inst *installation, spec Spec, jvm []string) (_ *Cluster, err error) {
	c := &Cluster{spec: spec, inst: inst}
	if c.dir, c.owner, err = newDataDir(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if spec.Secure {
		if c.sec, err = newSecurity(c.dir); err != nil {
			return nil, err
		}
	}
	ports, err := pickPorts(spec.Nodes)
	if err != nil {
		return nil, err
	}
	id := randomBytes(16)
	id[0] &= 0x3f // a leading "-" would look like an option
	clusterID := base64.RawURLEncoding.EncodeToString(id)
	for id := 1; id <= spec.Nodes; id++ {
		n, err := newNode(inst, spec, id, ports, c.dir, c.sec, jvm)
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, n)
		c.seeds = append(c.seeds, n.addr())
	}
	formatted := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() { formatted[i] = n.format(ctx, inst, spec, clusterID, c.sec) })
	}
	wg.Wait()
	if err := errors.Join(formatted...); err != nil {
		return nil, err
	}
	for _, n := range c.nodes {
		if err := n.start(inst.java); err != nil {
			return nil, err
		}
	}
	if err := c.awaitNodes(ctx, c.nodes); err != nil {
		return nil, err
	}
	if err := c.awaitCoordinators(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Spec is what the cluster was started for, with what was left out filled in.
func (c *Cluster) Spec() Spec { return c.spec }

// Shared tells whether others may be using the cluster.
func (c *Cluster) Shared() bool { return c.shared }

// Seeds are the addresses of the nodes, in the order of their ids.
func (c *Cluster) Seeds() []string { return append([]string(nil), c.seeds...) }

// Opts are the client options that reach the cluster as the super user: seeds,
// and with [Spec.Secure] TLS and SASL.
func (c *Cluster) Opts() []kgo.Opt { return c.UserOpts(SuperUser) }

// UserOpts are the client options that reach the cluster as user, whom
// [Cluster.AddUser] makes. Without [Spec.Secure] there are no users, and they are
// the same as Opts.
func (c *Cluster) UserOpts(user string) []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(c.seeds...)}
	if c.sec != nil {
		opts = append(opts, c.sec.opts(user)...)
	}
	return opts
}

// Close kills the nodes and removes what they wrote. A shared cluster stays for
// the others.
func (c *Cluster) Close() {
	if !c.shared {
		c.end()
	}
}

func (c *Cluster) end() {
	c.closeOnce.Do(func() {
		for _, n := range c.nodes {
			n.close()
		}
		if c.dir != "" {
			_ = os.RemoveAll(c.dir)
		}
		if c.owner != nil {
			_ = os.Remove(c.owner.Name())
			_ = c.owner.Close()
		}
	})
}

// newDataDir makes a directory for the nodes' files and holds the lock that says
// that its owner lives. Directories of owners that died are removed.
func newDataDir(ctx context.Context) (string, *os.File, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", nil, err
	}
	runDir := filepath.Join(cache, "run")
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		return "", nil, err
	}
	// Nobody sweeps while a directory has no lock yet.
	sweeping, err := lock(ctx, filepath.Join(cache, "run.lock"))
	if err != nil {
		return "", nil, err
	}
	defer sweeping.Close()
	left, err := os.ReadDir(runDir)
	if err != nil {
		return "", nil, err
	}
	for _, entry := range left {
		dir := filepath.Join(runDir, strings.TrimSuffix(entry.Name(), ".lock"))
		if f, err := tryLock(dir + ".lock"); err == nil && f != nil {
			_ = os.RemoveAll(dir)
			_ = os.Remove(f.Name())
			_ = f.Close()
		}
	}
	dir, err := os.MkdirTemp(runDir, "")
	if err != nil {
		return "", nil, err
	}
	owner, err := tryLock(dir + ".lock")
	if err == nil && owner == nil {
		err = fmt.Errorf("kafkatest: %s.lock is held", dir)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, owner, nil
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
