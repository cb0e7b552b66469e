//go:build unix

package kafkatest

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes path's lock if no other process (or earlier call) holds it;
// nil without an error means that it is held. Closing the file gives it back,
// and so does the end of the process: children do not inherit it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	return f, nil
}
