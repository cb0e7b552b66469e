package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

func requireCounts(t *testing.T, brokers string) {
	t.Helper()
	var out strings.Builder
	r, err := run(t.Context(), config{brokers: brokers, words: 300, every: 20}, &out)
	require.NoError(t, err, out.String())
	require.Equal(t, 1, r.failures)
	require.Equal(t, 1, r.kills)
	require.Equal(t, 300, r.visible)
	require.Greater(t, r.written, r.visible)
	sum := 0
	for _, n := range r.counts {
		sum += n
	}
	require.Equal(t, 300, sum)
}

func TestEmbedded(t *testing.T) { requireCounts(t, "") }

func TestRealKafka(t *testing.T) {
	for name, spec := range map[string]kafkatest.Spec{"latest": kafkatest.Latest(), "old rules": kafkatest.OldRules()} {
		t.Run(name, func(t *testing.T) {
			requireCounts(t, strings.Join(kafkatest.Shared(t, spec).Seeds(), ","))
		})
	}
}
