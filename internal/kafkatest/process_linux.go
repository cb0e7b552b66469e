package kafkatest

import "syscall"

// childAttr makes a child die with the thread that started it (run and node
// keep that thread until the child has ended), and keeps the terminal's Ctrl-C
// from it.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
