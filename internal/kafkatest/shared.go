package kafkatest

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"
)

// serverEnv names the server that shares clusters between processes.
const serverEnv = "KTXN_KAFKATEST"

// provideTime bounds Shared and Own, downloads included.
const provideTime = 8 * time.Minute

// Shared answers the cluster of that spec that all tests share: the server's if
// KTXN_KAFKATEST names one, else one of this process, started by the first test
// that asks and ended by [Main]. A cluster that does not start fails every test
// that wants it. Without Java or Maven the test is skipped.
func Shared(tb testing.TB, spec Spec) *Cluster {
	tb.Helper()
	spec, err := spec.check()
	if err != nil {
		tb.Fatal(err)
	}
	c, err := shared.get(spec)
	skipOrFail(tb, err)
	return c
}

// Own starts a cluster for this test alone and ends it with the test. When the
// test fails, the ends of the nodes' logs are in its output. Without Java or
// Maven the test is skipped.
func Own(tb testing.TB, spec Spec) *Cluster {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), provideTime)
	defer cancel()
	c, err := Start(ctx, spec)
	skipOrFail(tb, err)
	tb.Cleanup(func() {
		if tb.Failed() {
			for _, n := range c.nodes {
				tb.Log(n.logTail(30))
			}
		}
		c.Close()
	})
	return c
}

func skipOrFail(tb testing.TB, err error) {
	tb.Helper()
	var missing *MissingError
	switch {
	case errors.As(err, &missing):
		tb.Skipf("%v; install it, then: go test -run '^%s$'", missing, tb.Name())
	case err != nil:
		tb.Fatal(err)
	}
}

// Main wraps a package's tests so that their shared clusters are ended after the
// last test and before anything that looks for leaks:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(kafkatest.Main(m)) }
func Main(m *testing.M) *Suite { return &Suite{m} }

// Suite runs the tests of a package. See [Main].
type Suite struct{ m *testing.M }

// Run runs the tests, ends the clusters they shared and answers the exit code.
func (s *Suite) Run() int {
	defer shared.end()
	return s.m.Run()
}

// sharedClusters are those of this process, by spec.
type sharedClusters struct {
	mu     sync.Mutex // guards bySpec
	bySpec map[Spec]*sharedCluster
}

type sharedCluster struct {
	once    sync.Once
	cluster *Cluster
	release func()
	err     error
}

var shared = &sharedClusters{bySpec: map[Spec]*sharedCluster{}}

func (s *sharedClusters) get(spec Spec) (*Cluster, error) {
	s.mu.Lock()
	sc := s.bySpec[spec]
	if sc == nil {
		sc = &sharedCluster{}
		s.bySpec[spec] = sc
	}
	s.mu.Unlock()
	sc.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), provideTime)
		defer cancel()
		if addr := os.Getenv(serverEnv); addr != "" {
			sc.cluster, sc.release, sc.err = lease(ctx, addr, spec)
			return
		}
		if sc.cluster, sc.err = Start(ctx, spec); sc.err == nil {
			sc.cluster.shared, sc.release = true, sc.cluster.end
		}
	})
	return sc.cluster, sc.err
}

func (s *sharedClusters) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for spec, sc := range s.bySpec {
		if sc.release != nil {
			sc.release()
		}
		delete(s.bySpec, spec)
	}
}
