package kafkatest

import (
	"context"
	"encoding/hex"
	"strings"
	"testing"
	"time"
)

// UniqueID answers a name that no other test and no other run uses: for
// transactional ids, groups and users. It starts with the test's name.
func UniqueID(tb testing.TB) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, tb.Name())
	return name[:min(len(name), 80)] + "-" + hex.EncodeToString(randomBytes(5))
}

// Topic makes a topic of the test's own and answers its name.
func Topic(tb testing.TB, c *Cluster, partitions int) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	name := UniqueID(tb)
	if err := c.CreateTopic(ctx, name, partitions); err != nil {
		tb.Fatal(err)
	}
	return name
}
