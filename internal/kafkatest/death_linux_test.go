package kafkatest_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ktxn/ktxn/internal/kafkatest"
)

func TestNodesDieWithTheirOwner(t *testing.T) {
	t.Parallel()
	if err := kafkatest.Available(t.Context()); err != nil {
		skipWithoutTools(t, err)
	}
	cmd := exec.CommandContext(bounded(t), os.Args[0])
	cmd.Env = append(os.Environ(), ownerEnv+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var pid int
	var dir, said string
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		said += lines.Text() + "\n"
		_, _ = fmt.Sscanf(lines.Text(), "owner %d %s", &pid, &dir)
	}
	require.NotZero(t, pid, said)
	require.DirExists(t, dir)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	require.Eventually(t, func() bool {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty for what waits to be reaped
		return len(args) == 0
	}, 3*time.Second, 10*time.Millisecond, "the node outlives its owner")

	// The next owner clears the files away.
	mine, lock, err := kafkatest.NewDataDir(t.Context())
	require.NoError(t, err)
	require.NoDirExists(t, dir)
	require.NoError(t, os.Remove(lock.Name()))
	require.NoError(t, os.Remove(mine))
	require.NoError(t, lock.Close())
}
