package oci_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/oci"
)

// lifeEnv makes a test's process one that prepares containers and is killed.
const lifeEnv = "MCPX_TEST_OCI_LIFE"

const lifeOwner = "oci-life-test"

// live is the life of the process that is killed: it waits with a container
// whose init waits, and one whose script runs.
func live(init, dir string) error {
	e, err := oci.New(oci.Config{Dir: dir, InitPath: init})
	if err != nil {
		return err
	}
	ctx := context.Background()
	for _, name := range []string{"waits", "runs"} {
		at, err := os.MkdirTemp("", "mcpx-life")
		if err != nil {
			return err
		}
		if err := os.Chmod(at, 0o755); err != nil {
			return err
		}
		fmt.Println(at)
		control, err := listen(at)
		if err != nil {
			return err
		}
		c, err := e.Prepare(ctx, engine.Spec{
			Owner: lifeOwner, Run: name, Image: "mcpx/bash", User: "65532:65532", Network: engine.NetworkNone,
			ControlDir: at, Control: control,
		})
		if err != nil {
			return err
		}
		if name == "runs" {
			_, err = c.Run(ctx, engine.Job{Argv: []string{"/bin/sh", "-c", "echo up; trap '' TERM HUP; while :; do sleep 1; done"}, Cwd: "/", Env: []string{"PATH=/bin"}}, engine.IO{Stdout: os.Stdout})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestOCISweepClearsUpAfterAKill: an engine that is killed leaves containers,
// and the next one finds them all.
func TestOCISweepClearsUpAfterAKill(t *testing.T) {
	dir := storeDir(t)
	next := open(t, oci.Config{Dir: dir})
	_, err := next.EnsureImage(t.Context(), "mcpx/bash", engine.PullNever)
	require.NoError(t, err)
	life := exec.Command(os.Args[0])
	life.Env = append(os.Environ(), lifeEnv+"="+initPath(t)+"\n"+dir)
	life.Stderr = os.Stderr
	out, err := life.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, life.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "up" {
		control := lines.Text()
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(control)) })
	}
	require.Equal(t, "up", lines.Text(), "the life has come to its script")
	require.NotEmpty(t, leftovers(t, dir, lifeOwner))
	require.NoError(t, life.Process.Signal(syscall.SIGKILL))
	io.Copy(io.Discard, out) //nolint:errcheck // its end is what is waited for
	require.Error(t, life.Wait())

	n, err := next.Sweep(t.Context(), lifeOwner)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Empty(t, leftovers(t, dir, lifeOwner))
	require.NoDirExists(t, filepath.Join(dir, "run", lifeOwner))
	n, err = next.Sweep(t.Context(), lifeOwner)
	require.NoError(t, err)
	require.Zero(t, n)
}

// TestOCISweepFindsWhatHasNoDirectory: a store that was cleared by hand.
func TestOCISweepFindsWhatHasNoDirectory(t *testing.T) {
	dir := storeDir(t)
	e := open(t, oci.Config{Dir: dir})
	c, err := e.Prepare(t.Context(), specOf(t, "no-directory"))
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "run", testOwner)))
	n, err := e.Sweep(t.Context(), testOwner)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Empty(t, leftovers(t, dir, testOwner))
	require.NoError(t, c.Remove(context.WithoutCancel(t.Context())))
}
