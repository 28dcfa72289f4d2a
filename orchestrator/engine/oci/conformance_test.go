package oci_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine/enginetest"
	"mcpx/orchestrator/engine/oci"
	"mcpx/orchestrator/supervisor/inittest"
)

func TestOCIConformance(t *testing.T) {
	enginetest.Run(t, harness(t, "crun"))
}

func TestOCIConformanceWithRunc(t *testing.T) {
	enginetest.Run(t, harness(t, "runc"))
}

func harness(t *testing.T, runtime string) enginetest.Harness {
	dir := storeDir(t)
	return enginetest.Harness{
		Engine: open(t, oci.Config{Dir: dir, Runtime: runtime}),
		Images: map[string]string{"sh": "mcpx/bash", "python3": "mcpx/python3"},
		Dir:    shortDir(t), User: "65532:65532",
		Unreachable: open(t, oci.Config{Dir: t.TempDir(), Runtime: "/nonexistent/crun"}),
		Leftovers:   func(t testing.TB, owner string) []string { return leftovers(t, dir, owner) },
		KillInit:    killInit,
	}
}

// storeDir is a store of images that tests share: unpacking takes seconds.
func storeDir(t *testing.T) string {
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	return filepath.Join(cache, "mcpx-test", "oci")
}

// open makes an engine with the init of this tree.
func open(t *testing.T, c oci.Config) *oci.Engine {
	t.Helper()
	if c.InitPath == "" {
		c.InitPath = inittest.Build(t)
	}
	e, err := oci.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "mcpx")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.Remove(dir), "control directories are left") })
	return dir
}

// leftovers looks without the engine's help: for directories, and cgroups of
// any kind, whose processes they hold.
func leftovers(t testing.TB, dir, owner string) []string {
	var all []string
	for _, pattern := range []string{
		filepath.Join(dir, "run", owner, "*"), "/sys/fs/cgroup/*/mcpx/" + owner + "/*/", "/sys/fs/cgroup/mcpx/" + owner + "/*/",
	} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		all = append(all, found...)
	}
	return all
}

// killInit finds the process that is the first one of its namespace.
func killInit(t testing.TB, id string) {
	files, err := filepath.Glob("/sys/fs/cgroup/*/mcpx/*/" + id + "/cgroup.procs")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		require.NoError(t, err)
		if first(pid) {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			return
		}
	}
	t.Fatalf("no init in %s", files[0])
}

func first(pid int) bool {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return false // it has ended
	}
	for line := range strings.Lines(string(status)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			all := strings.Fields(numbers)
			return all[len(all)-1] == "1"
		}
	}
	return false
}
