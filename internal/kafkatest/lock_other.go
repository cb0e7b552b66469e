//go:build !unix

package kafkatest

import (
	"errors"
	"os"
)

// tryLock refuses: without file locks two processes would remove each other's
// data directories.
func tryLock(string) (*os.File, error) {
	return nil, errors.ErrUnsupported
}
