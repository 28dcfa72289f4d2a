package proctree_test

import (
	"bufio"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/supervisor/proctree"
)

const patience = 30 * time.Second

// start starts a shell that says ready and waits until its stdin ends.
func start(t *testing.T, name, script string) (*exec.Cmd, io.Closer) {
	cmd := exec.Command(name, "-c", script)
	hold, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it kills with `kill 0` must not be us
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		hold.Close()
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		cmd.Wait()         //nolint:errcheck // as above
	})
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return cmd, hold
}

func TestDescendants(t *testing.T) {
	cmd, _ := start(t, "/bin/sh", `sh -c 'sleep 300 & sleep 300 & echo ready; wait' & read x; kill -9 0`)
	below, err := proctree.Descendants(cmd.Process.Pid)
	require.NoError(t, err)
	require.Len(t, below, 3)
	require.NotContains(t, below, proctree.Process{PID: cmd.Process.Pid})
	all, err := proctree.Descendants(os.Getpid())
	require.NoError(t, err)
	require.Subset(t, all, below)
	for _, p := range below { // parents come first
		require.NoError(t, p.Signal(syscall.SIGKILL))
		ended, err := p.Wait(patience)
		require.NoError(t, err)
		require.True(t, ended)
	}
}

func TestNoneBelow(t *testing.T) {
	below, err := proctree.Descendants(math.MaxInt32)
	require.NoError(t, err)
	require.Empty(t, below)
}

func TestNamesDoNotConfuse(t *testing.T) {
	path := filepath.Join(t.TempDir(), ") Z 1 (")
	sh, err := filepath.EvalSymlinks("/bin/sh")
	require.NoError(t, err)
	content, err := os.ReadFile(sh)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, content, 0o755))
	cmd, _ := start(t, path, "echo ready; read x")
	p, err := proctree.Find(cmd.Process.Pid)
	require.NoError(t, err)
	require.NotZero(t, p.Start)
	below, err := proctree.Descendants(os.Getpid())
	require.NoError(t, err)
	require.Contains(t, below, p)
}

func TestAnotherProcessOfThatIDIsNotTouched(t *testing.T) {
	cmd, _ := start(t, "/bin/sh", "echo ready; read x")
	p, err := proctree.Find(cmd.Process.Pid)
	require.NoError(t, err)
	other := proctree.Process{PID: p.PID, Start: p.Start - 1}
	require.ErrorIs(t, other.Signal(syscall.SIGKILL), proctree.ErrGone)
	ended, err := other.Wait(patience)
	require.NoError(t, err)
	require.True(t, ended, "the one that was meant has ended")
	again, err := proctree.Find(p.PID)
	require.NoError(t, err)
	require.Equal(t, p, again, "this one lives")
}

func TestEndIsSeen(t *testing.T) {
	cmd, hold := start(t, "/bin/sh", "echo ready; read x")
	p, err := proctree.Find(cmd.Process.Pid)
	require.NoError(t, err)
	ended, err := p.Wait(0)
	require.NoError(t, err)
	require.False(t, ended, "it lives")
	hold.Close()
	ended, err = p.Wait(patience)
	require.NoError(t, err)
	require.True(t, ended)
	_, err = proctree.Find(p.PID)
	require.ErrorIs(t, err, proctree.ErrGone, "a zombie is no process")
	cmd.Wait() //nolint:errcheck // read failed in it
	require.ErrorIs(t, p.Signal(syscall.SIGKILL), proctree.ErrGone)
	_, err = proctree.Find(p.PID)
	require.ErrorIs(t, err, proctree.ErrGone)
}
