package link_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
)

func TestPlaceFiles(t *testing.T) {
	before := syscall.Umask(0o077) // the script's uid is another one, whatever ours takes away
	defer syscall.Umask(before)
	dir := t.TempDir()
	large := []byte(strings.Repeat("x", 16<<20))
	require.NoError(t, link.PlaceFiles(dir, []engine.File{
		{Path: "main.py", Mode: 0o644, Data: []byte("print()")},
		{Path: "lib/deep/run", Mode: 0o755, Data: large},
		{Path: "lib/secret", Mode: 0o200},
		{Path: "lib/wide", Mode: 0o4777 | fs.ModeSetuid},
		{Path: "测试 \xff", Mode: 0o600},
	}))
	for name, mode := range map[string]fs.FileMode{
		"": fs.ModeDir | 0o755, "lib": fs.ModeDir | 0o755, "lib/deep": fs.ModeDir | 0o755,
		"main.py": 0o644, "lib/deep/run": 0o755, "lib/secret": 0o644, "lib/wide": 0o755, "测试 \xff": 0o644,
	} {
		info, err := os.Lstat(filepath.Join(dir, "job", name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), name)
	}
	got, err := os.ReadFile(filepath.Join(dir, "job/lib/deep/run"))
	require.NoError(t, err)
	require.True(t, string(large) == string(got))
}

func TestPlaceFilesMakesTheDirectoryForNone(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, link.PlaceFiles(dir, nil))
	require.DirExists(t, filepath.Join(dir, "job"))
}

func TestPlaceFilesRefuses(t *testing.T) {
	for name, paths := range map[string][]string{
		"parent": {"../x"}, "hidden parent": {"a/../../x"}, "absolute": {"/etc/x"}, "empty": {""}, "itself": {"."},
		"not clean": {"a//b"}, "dot": {"./a"}, "trailing slash": {"a/"}, "same name": {"a", "a"},
		"file as directory": {"a", "a/b"}, "directory as file": {"a/b", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			outer := t.TempDir()
			dir := filepath.Join(outer, "control")
			require.NoError(t, os.Mkdir(dir, 0o755))
			var files []engine.File
			for _, p := range paths {
				files = append(files, engine.File{Path: p})
			}
			err := link.PlaceFiles(dir, files)
			require.True(t, errdefs.IsInvalidArgument(err), "%v", err)
			left, err := os.ReadDir(outer)
			require.NoError(t, err)
			require.Len(t, left, 1, "nothing outside")
		})
	}
}

func TestPlaceFilesFollowsNoLinkOut(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	require.NoError(t, link.PlaceFiles(dir, nil))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "job/out")))
	require.Error(t, link.PlaceFiles(dir, []engine.File{{Path: "out/x"}}))
	left, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Error(t, link.PlaceFiles(filepath.Join(dir, "none"), nil))
}
