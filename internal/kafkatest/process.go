package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// process is a running child. Its thread is kept until it has ended: on Linux
// the death of the thread that started a child kills the child.
type process struct {
	*os.Process
	exited chan struct{} // closed when the child has been reaped
	err    error         // how it ended, readable once exited is closed
}

func start(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = childAttr()
	p := &process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.Process = cmd.Process
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// kill ends the child and those it started, and waits until it is gone.
func (p *process) kill() {
	if err := killTree(p.Process); err != nil {
		_ = p.Process.Kill()
	}
	<-p.exited
}

// run runs a command to its end, or kills it when ctx ends. The error carries
// the end of what the command said.
func run(ctx context.Context, dir, name string, args ...string) (stdout []byte, err error) {
	cmd := exec.Command(name, args...)
	var out, diag strings.Builder
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &diag
	cmd.WaitDelay = 5 * time.Second
	p, err := start(cmd)
	if err != nil {
		return nil, fmt.Errorf("kafkatest: %s: %w", name, err)
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		p.kill()
		return nil, fmt.Errorf("kafkatest: %s: %w", name, context.Cause(ctx))
	}
	if p.err != nil {
		said := strings.TrimSpace(tail(diag.String(), 60) + "\n" + tail(out.String(), 60))
		return nil, errors.Join(fmt.Errorf("kafkatest: %s: %w", commandLine(name, args), p.err), errors.New(said))
	}
	return []byte(out.String()), nil
}

// commandLine is for people: without the long classpath.
func commandLine(name string, args []string) string {
	words := []string{filepath.Base(name)}
	for _, a := range args {
		if len(a) > 200 {
			a = "..."
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

// tail is the last n lines of s.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
