package examplekit_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ktxn/ktxn/internal/examplekit"
)

func TestChild(t *testing.T) {
	for _, tt := range []struct {
		end    string
		killed bool
		err    string
	}{
		{"ends", false, ""},
		{"dies", true, ""},
		{"fails", false, "the reason"},
	} {
		t.Run(tt.end, func(t *testing.T) {
			var out strings.Builder
			killed, err := examplekit.Child(t.Context(), &out, tt.end)
			require.Equal(t, "child "+tt.end+"\n", out.String())
			require.Equal(t, tt.killed, killed)
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.err)
			}
		})
	}
}

func TestChildEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var out strings.Builder
	killed, err := examplekit.Child(ctx, &out, "waits")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, killed, "it was killed by its parent and not by itself")
}
