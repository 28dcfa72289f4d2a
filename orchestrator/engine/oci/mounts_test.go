package oci_test

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/oci"
)

// TestOCIEveryMountIsClosed: no device, and no set-uid program, of a mount is
// one in a container. The root's own are the next test's.
func TestOCIEveryMountIsClosed(t *testing.T) {
	for _, runtime := range []string{"crun", "runc"} {
		t.Run(runtime, func(t *testing.T) { everyMountIsClosed(t, runtime) })
	}
}

func everyMountIsClosed(t *testing.T, runtime string) {
	spec := specOf(t, "mounts-closed-"+runtime)
	spec.Mounts = []engine.Mount{{Source: t.TempDir(), Target: "/mnt/w", Writable: true}, {Source: t.TempDir(), Target: "/mnt/r"}}
	spec.Tmpfs, spec.Outbox = []engine.Tmpfs{{Target: "/tmp"}}, 1<<20
	r := runIn(t, open(t, oci.Config{Dir: storeDir(t), Runtime: runtime}), spec, "cat", "/proc/mounts")
	require.Equal(t, engine.Exit{}, r.Exit, r.stderr)
	options := map[string][]string{}
	for line := range strings.Lines(r.stdout) {
		fields := strings.Fields(line)
		options[fields[1]] = strings.Split(fields[3], ",")
	}
	require.Contains(t, options["/"], "ro")
	for _, at := range []string{"/mnt/w", "/mnt/r", "/tmp", engine.OutboxDir, engine.RunDir, engine.InitPath, "/etc/hosts", "/proc", "/sys", "/dev/shm", "/dev/mqueue"} {
		require.Contains(t, options[at], "nosuid", at)
		require.Contains(t, options[at], "nodev", at)
	}
	for _, at := range []string{"/mnt/r", engine.RunDir, engine.InitPath, "/etc/hosts", "/etc/hostname", "/sys", "/proc/sys"} {
		require.Contains(t, options[at], "ro", at)
	}
	for _, at := range []string{engine.OutboxDir, "/proc", "/sys", "/dev", "/dev/shm"} {
		require.Contains(t, options[at], "noexec", at)
	}
}

// TestOCIDevicesOfAnImageAreNone: no cgroup keeps containers from devices, so
// there may be none.
func TestOCIDevicesOfAnImageAreNone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for name, kind := range map[string]byte{"disk": tar.TypeBlock, "mem": tar.TypeChar} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: kind, Mode: 0o666, Devmajor: 1, Devminor: 1}))
	}
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "dir/.wh.gone", Typeflag: tar.TypeReg, Mode: 0o600}))
	require.NoError(t, w.Close())
	_, err := open(t, oci.Config{Dir: dir}).Import(t.Context(), bytes.NewReader(dockerArchive(t, []string{"x"}, layer.Bytes())))
	require.NoError(t, err)
	left, err := filepath.Glob(filepath.Join(dir, "layers", "*", "*"))
	require.NoError(t, err)
	require.Len(t, left, 1)
	info, err := os.Lstat(filepath.Join(left[0], "gone"))
	require.NoError(t, err, "a whiteout is a device too")
	require.Equal(t, fs.ModeDevice|fs.ModeCharDevice, info.Mode().Type())
}
