package proof_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ktxn/ktxn/internal/kafkatest"
	"github.com/ktxn/ktxn/internal/proof/torture"
)

// A node dies every 15 s under four sessions, for a minute. The long form is
//
//	go run ./internal/proof/cmd/torture -duration 3m
func TestTorture(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute: go test -run TestTorture ./internal/proof, or longer: go run ./internal/proof/cmd/torture -duration 3m")
	}
	c := kafkatest.Own(t, kafkatest.ThreeNodes())
	report, err := torture.Run(t.Context(), c, torture.Config{
		Duration: time.Minute, KillEvery: 15 * time.Second, Log: t.Logf,
	})
	t.Log(report)
	require.NoError(t, err)
	require.GreaterOrEqual(t, report.Kills, 3)
	require.Positive(t, report.Committed)
	require.Positive(t, report.Aborted)
	require.Positive(t, report.Prepared)
	require.Positive(t, report.Unknown, "some calls were cut short")
	require.Positive(t, report.Visible)
}
