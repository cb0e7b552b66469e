package examplekit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// childEnv is set for the processes that an example starts of itself.
const childEnv = "KTXN_EXAMPLE_CHILD"

// IsChild reports whether this process was started by Child. A test binary
// that is asks main to run instead of its tests.
func IsChild() bool { return os.Getenv(childEnv) != "" }

// Child runs this program again with other arguments, passes on what it prints
// and returns when it has ended. killed is true if it died by a signal, or by
// Die, rather than of its own accord.
func Child(ctx context.Context, out io.Writer, args ...string) (killed bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stdout, cmd.Stderr = out, &said
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return false, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case errors.As(err, &exit) && diedOfSignal(exit):
		return true, nil
	}
	return false, fmt.Errorf("%s: %w: %s", args[0], err, said.String())
}

// Die ends the process at once, as kill -9 does: no deferred call runs, nothing
// that is buffered is written, no connection is closed in order.
func Die() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {} // the signal is on its way
}
