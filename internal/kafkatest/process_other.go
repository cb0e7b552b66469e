//go:build !unix

package kafkatest

import (
	"errors"
	"os"
	"syscall"
)

func childAttr() *syscall.SysProcAttr { return nil }

func pause(*os.Process) error       { return errors.ErrUnsupported }
func resume(*os.Process) error      { return errors.ErrUnsupported }
func killTree(p *os.Process) error  { return p.Kill() }
func terminate(p *os.Process) error { return p.Kill() }
