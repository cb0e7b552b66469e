package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/internal/examplekit"
	"github.com/ktxn/ktxn/internal/kafkatest"
)

var defaults = config{workers: 3, batch: 3, fail: true, kill: true}

// requireExact checks what a run with both faults must have come to. That the
// counts are right, run has proved.
func requireExact(t *testing.T, cfg config) {
	t.Helper()
	var out strings.Builder
	p, err := run(t.Context(), cfg, &out)
	require.NoError(t, err, out.String())
	require.Equal(t, 60, p.lines)
	require.Equal(t, 1, p.aborted)
	require.Equal(t, 1, p.killed)
	require.GreaterOrEqual(t, p.committed, p.lines/cfg.batch)
	require.Greater(t, p.seen, p.visible, "what the killed worker wrote is in the topic and invisible")
	require.Contains(t, out.String(), "proof     exact")
}

func TestEmbedded(t *testing.T) { requireExact(t, defaults) }

func TestRealKafka(t *testing.T) {
	for name, spec := range map[string]kafkatest.Spec{
		"latest": kafkatest.Latest(), "old rules": kafkatest.OldRules(), "3.9": kafkatest.Kafka39(),
	} {
		t.Run(name, func(t *testing.T) {
			cfg := defaults
			cfg.brokers = strings.Join(kafkatest.Shared(t, spec).Seeds(), ",")
			requireExact(t, cfg)
		})
	}
}

func TestWithoutFaultsNothingIsAborted(t *testing.T) {
	cfg := defaults
	cfg.fail, cfg.kill, cfg.workers = false, false, 1
	p, err := run(t.Context(), cfg, &strings.Builder{})
	require.NoError(t, err)
	require.Zero(t, p.aborted+p.killed)
	require.Equal(t, p.seen, p.visible)
}

func TestInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(file, []byte("one two\n\n  three two  \n"), 0o600))
	cfg := config{workers: 1, batch: 1, input: file}
	p, err := run(t.Context(), cfg, &strings.Builder{})
	require.NoError(t, err)
	require.Equal(t, proof{lines: 2, words: 4, distinct: 3, committed: 2, seen: 4, visible: 4}, p)

	cfg.input = file + "-that-is-not-there"
	_, err = run(t.Context(), cfg, &strings.Builder{})
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, os.WriteFile(file, []byte("\n \n"), 0o600))
	cfg.input = file
	_, err = run(t.Context(), cfg, &strings.Builder{})
	require.ErrorContains(t, err, "no line")
}

// TestProofFindsADoubleCount shows that the proof can fail.
func TestProofFindsADoubleCount(t *testing.T) {
	cluster, err := examplekit.Open(t.Context(), "")
	require.NoError(t, err)
	defer cluster.Close()
	a := &app{cluster: cluster, out: "counts", progress: newProgress(1, false, false), say: t.Logf}
	require.NoError(t, cluster.CreateTopics(t.Context(), 1, nil, a.out))
	cl, err := kgo.NewClient(append(cluster.Opts(), kgo.DefaultProduceTopic(a.out))...)
	require.NoError(t, err)
	defer cl.Close()
	add := func(word, n string) {
		t.Helper()
		require.NoError(t, cl.ProduceSync(t.Context(), kgo.KeyStringRecord(word, n)).FirstErr())
	}
	lines := []string{"Quoth the raven"}

	add("quoth", "1")
	add("the", "1")
	_, err = a.prove(t.Context(), lines)
	require.ErrorContains(t, err, "raven 0 instead of 1")
	add("raven", "1")
	_, err = a.prove(t.Context(), lines)
	require.NoError(t, err)
	add("raven", "1")
	_, err = a.prove(t.Context(), lines)
	require.ErrorContains(t, err, "raven 2 instead of 1")
}

func TestStopInTheMiddle(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out stopper
	out.cancel = cancel
	_, err := run(ctx, defaults, &out)
	require.ErrorIs(t, err, context.Canceled)
}

// stopper interrupts the run at the first word of a worker.
type stopper struct{ cancel context.CancelFunc }

func (s *stopper) Write(b []byte) (int, error) {
	if strings.HasPrefix(string(b), "worker") {
		s.cancel()
	}
	return len(b), nil
}
