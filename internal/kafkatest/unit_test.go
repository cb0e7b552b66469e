package kafkatest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

func TestPartitionOfIsJavas(t *testing.T) {
	for id, want := range map[string]int32{
		"":                   0,
		"hello":              99162322 % 50,
		"polygenelubricants": 0,                                // hashes to the smallest number
		"zzzzzz":             685785664 % 50,                   // 31 overflows
		"é😀":                 (31*(31*233+55357) + 56832) % 50, // UTF-16 units
	} {
		require.Equal(t, want, kafkatest.PartitionOf(id, 50), id)
	}
}

func TestUniqueIDIsAName(t *testing.T) {
	t.Run("with spaces/and ünïcode", func(t *testing.T) {
		a, b := kafkatest.UniqueID(t), kafkatest.UniqueID(t)
		require.NotEqual(t, a, b)
		require.Regexp(t, `^TestUniqueIDIsAName-with-spaces-and--n-code-[0-9a-f]{10}$`, a)
	})
}

func TestSpecsAreValues(t *testing.T) {
	three := kafkatest.Latest()
	three.Nodes = 3
	require.Len(t, map[kafkatest.Spec]bool{kafkatest.ThreeNodes(): true, three: true}, 1)
	require.Equal(t, "kafka 4.4.0 x3 transaction.version=0 share.version=1 unstable 2pc secure [-Xmx1g] \"a=b\"", kafkatest.Spec{
		Version: "4.4.0", Nodes: 3, ShareVersion: 1, UnstableAPIs: true, TwoPhaseCommit: true, Secure: true, JVM: "-Xmx1g", Overrides: "a=b",
	}.String())
}

func TestCacheIsFilledOnce(t *testing.T) {
	t.Setenv("KTXN_KAFKA_CACHE", t.TempDir())
	var fills atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			dir, err := kafkatest.Cached(t.Context(), "thing", func(dir string) error {
				fills.Add(1)
				return os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)
			})
			if err != nil || filepath.Base(dir) != "thing" {
				t.Errorf("%s, %v", dir, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, fills.Load())
}

func TestCacheKeepsNothingHalfDone(t *testing.T) {
	t.Setenv("KTXN_KAFKA_CACHE", t.TempDir())
	boom := errors.New("boom")
	_, err := kafkatest.Cached(t.Context(), "thing", func(string) error { return boom })
	require.ErrorIs(t, err, boom)
	dir, err := kafkatest.Cached(t.Context(), "thing", func(string) error { return nil })
	require.NoError(t, err)
	require.DirExists(t, dir)
	require.NoDirExists(t, dir+".partial")
}

func TestCacheWaitsNoLongerThanItsContext(t *testing.T) {
	t.Setenv("KTXN_KAFKA_CACHE", t.TempDir())
	_, err := kafkatest.Cached(t.Context(), "thing", func(string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := kafkatest.Cached(ctx, "thing", func(string) error { return nil })
		return err
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
