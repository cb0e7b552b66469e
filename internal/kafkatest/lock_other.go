//go:build !unix

package kafkatest

import (
	"os"
	"runtime"
)

// tryLock refuses: without file locks two processes would remove each other's
// data directories.
func tryLock(string) (*os.File, error) {
	return nil, &MissingError{Tool: "a unix system", Reason: "this is " + runtime.GOOS}
}
