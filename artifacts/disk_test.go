package artifacts_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
	"mcpx/orchestrator/run"
)

const megabyte = 1 << 20

// requireDiskFull holds an error to what callers tell a full disk by.
func requireDiskFull(t *testing.T, err error) {
	t.Helper()
	var known *run.Error
	require.ErrorAs(t, err, &known)
	require.Equal(t, run.CodeDiskFull, known.Code)
	require.True(t, errdefs.IsResourceExhausted(err))
	require.Contains(t, known.Message, `"big"`)
}

// writeTooMuch stores more than the process may write into one file, for which
// nobody has to be root, and then what fits.
func writeTooMuch(dir string) error {
	s, err := openIn(dir, func(x artifacts.Index) artifacts.Index { return x })
	if err != nil {
		return err
	}
	limit := syscall.Rlimit{Cur: megabyte, Max: megabyte}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	_, err = tryPut(context.Background(), s, artifacts.Meta{Name: "big", Size: -1}, strings.Repeat("x", 2*megabyte))
	var known *run.Error
	if !errors.As(err, &known) {
		return fmt.Errorf("not told as what it is: %w", err)
	}
	fmt.Println(known.Code)
	_, err = tryPut(context.Background(), s, artifacts.Meta{Name: "small", Size: -1}, "x")
	return err
}

func TestFileThatTheSystemRefusesIsADiskFull(t *testing.T) {
	dir := t.TempDir()
	out, err := child(t, "limited", dir).Output()
	require.NoError(t, err)
	require.Equal(t, run.CodeDiskFull+"\n", string(out))
	require.Len(t, requireSound(t, dir), 1)
}

// smallDisk mounts a disk of two megabytes.
func smallDisk(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(path, 0o700))
	require.NoError(t, syscall.Mount("tmpfs", path, "tmpfs", 0, "size=2m"))
	t.Cleanup(func() { syscall.Unmount(path, syscall.MNT_DETACH) }) //nolint:errcheck // the test has ended
}

// Only root can mount; for all others the case above stands.
func TestFullDiskIsToldAndLeavesNothing(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	dir := t.TempDir()
	smallDisk(t, filepath.Join(dir, "store"))
	s := open(t, dir, artifacts.Options{})
	_, err := tryPut(t.Context(), s, artifacts.Meta{Name: "big", Size: -1}, strings.Repeat("x", 3*megabyte))
	requireDiskFull(t, err)
	require.Empty(t, files(t, dir))
	put(t, s, "small", "x")
}

// The index lies on a disk too.
func TestFullDiskOfTheIndexIsToldAndLeavesNothing(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	dir := t.TempDir()
	smallDisk(t, dir)
	s := open(t, dir, artifacts.Options{})
	kept := put(t, s, "small", "x")
	full, err := os.Create(filepath.Join(dir, "full"))
	require.NoError(t, err)
	_, err = io.Copy(full, strings.NewReader(strings.Repeat("x", 3*megabyte)))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, full.Close())

	for err = nil; err == nil; {
		_, err = tryPut(t.Context(), s, artifacts.Meta{Name: "big", Size: -1}, "")
	}
	requireDiskFull(t, err)
	require.NoError(t, os.Remove(full.Name()))
	put(t, s, "small", "y")
	require.Contains(t, requireSound(t, dir), kept.ID)
}
