//go:build unix

package kafkatest

import (
	"os"
	"syscall"
)

// pause and resume stop and continue a process without its noticing.
func pause(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// killTree kills a child and its children: mvn is a script that starts Java.
func killTree(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }

// terminate asks a process to end.
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
