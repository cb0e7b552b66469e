package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

func requireAll(t *testing.T, brokers string) {
	t.Helper()
	var out strings.Builder
	r, err := run(t.Context(), config{brokers: brokers, txns: 50}, &out)
	require.NoError(t, err, out.String())
	require.Equal(t, result{before: 0, after: 50 * perTxn, written: 51 * perTxn}, r)
	require.Contains(t, out.String(), "map[committed:50]")
}

func TestEmbedded(t *testing.T) { requireAll(t, "") }

func TestRealKafka(t *testing.T) {
	for name, spec := range map[string]kafkatest.Spec{
		"latest": kafkatest.Latest(), "old rules": kafkatest.OldRules(), "3.9": kafkatest.Kafka39(),
	} {
		t.Run(name, func(t *testing.T) {
			requireAll(t, strings.Join(kafkatest.Shared(t, spec).Seeds(), ","))
		})
	}
}

func TestUnknownCommand(t *testing.T) {
	require.ErrorContains(t, command(t.Context(), []string{"steal"}, &strings.Builder{}), "no such command: steal")
}

func TestStoredRefusesWhatIsNoTransaction(t *testing.T) {
	file := t.TempDir() + "/prepared"
	require.NoError(t, store(file, nil))
	all, err := stored(file)
	require.NoError(t, err)
	require.Empty(t, all)
	require.Error(t, commit(t.Context(), config{file: file + "-that-is-not-there"}, &strings.Builder{}))
}
