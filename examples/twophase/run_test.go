package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

func requireBoth(t *testing.T, cfg config) {
	t.Helper()
	var out strings.Builder
	r, err := run(t.Context(), cfg, &out)
	require.NoError(t, err, out.String())
	want := []int{1, 2, 3, 4, 5, 6, 7}
	require.Equal(t, result{journal: want, visible: want, written: len(want) + 1}, r)
	require.Contains(t, out.String(), "recovering transfer 3, the last in the journal: committed")
}

func TestEmbedded(t *testing.T) { requireBoth(t, config{}) }

func TestRealKafka(t *testing.T) {
	for name, tt := range map[string]struct {
		spec     kafkatest.Spec
		twoPhase bool
	}{
		"latest":    {kafkatest.Latest(), false},
		"old rules": {kafkatest.OldRules(), false},
		"KIP-939":   {kafkatest.Prepared(), true},
	} {
		t.Run(name, func(t *testing.T) {
			requireBoth(t, config{
				brokers: strings.Join(kafkatest.Shared(t, tt.spec).Seeds(), ","), twoPhase: tt.twoPhase,
			})
		})
	}
}

func TestWithoutTwoPhaseCommitItIsRefused(t *testing.T) {
	_, err := run(t.Context(), config{twoPhase: true}, &strings.Builder{})
	require.ErrorContains(t, err, "does not support two-phase commit")
}
