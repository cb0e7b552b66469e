//go:build unix

package examplekit

import (
	"os/exec"
	"syscall"
)

func diedOfSignal(exit *exec.ExitError) bool {
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
