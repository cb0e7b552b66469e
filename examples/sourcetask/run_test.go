package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

func requireCopy(t *testing.T, brokers string) {
	t.Helper()
	var out strings.Builder
	r, err := run(t.Context(), config{brokers: brokers, lines: 100, batch: 8}, &out)
	require.NoError(t, err, out.String())
	// The batch that would pass line 50 is the one that is killed.
	require.Equal(t, result{resumed: 48, killed: 8, written: 108, visible: 100}, r)
}

func TestEmbedded(t *testing.T) { requireCopy(t, "") }

func TestRealKafka(t *testing.T) {
	for name, spec := range map[string]kafkatest.Spec{"latest": kafkatest.Latest(), "old rules": kafkatest.OldRules()} {
		t.Run(name, func(t *testing.T) {
			requireCopy(t, strings.Join(kafkatest.Shared(t, spec).Seeds(), ","))
		})
	}
}
