//go:build unix && !linux

package kafkatest

import "syscall"

// childAttr keeps the terminal's Ctrl-C from a child. Only Linux can make it die
// with its parent.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
