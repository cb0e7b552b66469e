package kafkatest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

// cacheEnv moves the cache.
const cacheEnv = "KTXN_KAFKA_CACHE"

// cacheDir is where jars, class archives and the data of running nodes lie.
func cacheDir() (string, error) {
	dir := os.Getenv(cacheEnv)
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("kafkatest: no cache directory, set %s: %w", cacheEnv, err)
		}
		dir = filepath.Join(base, "ktxn")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// cached answers the directory of that name in the cache, made by fill if it is
// not there. One process fills it, the others wait; it appears complete or not at
// all.
func cached(ctx context.Context, name string, fill func(dir string) error) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, name)
	if present(dir) {
		return dir, nil
	}
	held, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer held.Close()
	if present(dir) {
		return dir, nil
	}
	// What a killed process left half done is under another name.
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return "", err
	}
	if err := os.Mkdir(partial, 0o755); err != nil {
		return "", err
	}
	if err := fill(partial); err != nil {
		_ = os.RemoveAll(partial)
		return "", err
	}
	return dir, os.Rename(partial, dir)
}

func present(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// digest is a short name for contents.
func digest(contents ...[]byte) string {
	h := sha256.New()
	for _, c := range contents {
		fmt.Fprintf(h, "%d\n", len(c))
		h.Write(c)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:6])
}
