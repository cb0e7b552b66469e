package main_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "kafkatest.exe")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

func command(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, binary, args...)
}

func TestExecGivesTheServerAndTheCode(t *testing.T) {
	cmd := command(t, "exec", "--", "sh", "-c", "echo addr=$KTXN_KAFKATEST; cat; exit 7")
	cmd.Stdin = strings.NewReader("input\n")
	out, err := cmd.Output()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 7, exit.ExitCode())
	require.Regexp(t, `^addr=127\.0\.0\.1:\d+\ninput\n$`, string(out))

	require.NoError(t, command(t, "exec", "true").Run())
	require.ErrorAs(t, command(t, "exec", "--", "no-such-command").Run(), &exit)
	require.Equal(t, 125, exit.ExitCode())
}

func TestServeEndsWithItsInput(t *testing.T) {
	cmd := command(t, "serve")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := readLine(t, out)
	addr, ok := strings.CutPrefix(line, "KTXN_KAFKATEST=")
	require.True(t, ok, line)
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
}

func TestRunEndsWithASignal(t *testing.T) {
	if err := kafkatest.Available(t.Context()); err != nil {
		t.Skipf("%v; install it, then: go test -run '^%s$'", err, t.Name())
	}
	cmd := command(t, "run", "-transaction-version", "0")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var said bytes.Buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	seed := readLine(t, out)
	conn, err := net.Dial("tcp", seed)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait())
	require.Contains(t, said.String(), "transaction.version=0")
	_, err = net.Dial("tcp", seed)
	require.Error(t, err)
}

func TestMisuse(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"nothing":      {nil, 2},
		"no command":   {[]string{"exec", "--"}, 2},
		"unknown":      {[]string{"walk"}, 2},
		"help":         {[]string{"run", "-h"}, 0},
		"unknown flag": {[]string{"run", "-x"}, 125},
		"bad version":  {[]string{"run", "-version", "nonsense"}, 125},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := command(t, c.args...)
			_ = cmd.Run()
			require.Equal(t, c.code, cmd.ProcessState.ExitCode())
		})
	}
}

// readLine reads one line and leaves the rest.
func readLine(t *testing.T, r io.Reader) string {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; {
		n, err := r.Read(b)
		if n == 1 && b[0] == '\n' || err != nil {
			return string(line)
		}
		line = append(line, b[:n]...)
	}
}
