package daemon_test

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/cmd/internal/daemon"
)

func TestSocketIsPrivateAndGoesWithItsListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "mcpx.sock")
	all, err := daemon.Listen([]string{"unix://" + path, "127.0.0.1:0"})
	require.NoError(t, err)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, fs.ModeSocket|0o600, info.Mode())
	addresses := daemon.Addresses(all)
	require.Equal(t, "unix://"+path, addresses[0])
	require.True(t, strings.HasPrefix(addresses[1], "http://127.0.0.1:"), addresses[1])
	require.True(t, daemon.Answers(path))
	require.NoError(t, daemon.CloseAll(all))
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestStaleSocketIsReplacedAndALivingOneIsNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcpx.sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	stale.SetUnlinkOnClose(false) // as after kill -9
	require.NoError(t, stale.Close())
	require.FileExists(t, path)

	living, err := daemon.Listen([]string{"unix://" + path})
	require.NoError(t, err)
	_, err = daemon.Listen([]string{"127.0.0.1:0", "unix://" + path})
	require.ErrorIs(t, err, errdefs.ErrAlreadyExists)
	require.True(t, daemon.Answers(path))
	require.NoError(t, daemon.CloseAll(living))
}

func TestClosingLeavesTheSocketOfASuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcpx.sock")
	first, err := daemon.Listen([]string{"unix://" + path})
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	second, err := daemon.Listen([]string{"unix://" + path})
	require.NoError(t, err)
	require.NoError(t, daemon.CloseAll(first))
	require.True(t, daemon.Answers(path))
	require.NoError(t, daemon.CloseAll(second))
}

func TestBadAddressesAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	for address, want := range map[string]string{
		"unix://relative.sock":                "not absolute",
		"unix:///" + strings.Repeat("x", 107): "a socket's may have 107",
		"unix://" + file:                      "no socket stands there",
		"127.0.0.1":                           "missing port",
		"":                                    "missing port",
	} {
		_, err := daemon.Listen([]string{address})
		require.ErrorContains(t, err, want, address)
		require.ErrorIs(t, err, errdefs.ErrInvalidArgument)
	}
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "precious", string(kept))
	_, err = daemon.Listen(nil)
	require.ErrorIs(t, err, errdefs.ErrInvalidArgument)
}

// The longest path that a client can connect to works for the daemon too.
func TestLongestSocketPath(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "m")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, strings.Repeat("x", 107-len(dir)-1))
	all, err := daemon.Listen([]string{"unix://" + path})
	require.NoError(t, err)
	require.True(t, daemon.Answers(path))
	require.NoError(t, daemon.CloseAll(all))
}
