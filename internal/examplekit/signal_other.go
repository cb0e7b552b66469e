//go:build !unix

package examplekit

import "os/exec"

// Kill ends a process with code 1 here.
func diedOfSignal(exit *exec.ExitError) bool { return exit.ExitCode() == 1 }
