package ocispec_test

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/ocispec"
)

var update = flag.Bool("update", false, "rewrite testdata")

// usual is a container with something of everything.
func usual() ocispec.Container {
	return ocispec.Container{
		Spec: engine.Spec{
			Owner: "o", Run: "r", Image: "i", User: "65532:65533",
			Limits:  engine.Limits{MemoryBytes: 192 << 20, CPUs: 1.5, Pids: 64, NoFile: 512, ShmBytes: 1 << 20},
			Network: engine.NetworkNone,
			Mounts:  []engine.Mount{{Source: "/src/ro", Target: "/data"}, {Source: "/src/rw", Target: "/work/in/deep", Writable: true}},
			Tmpfs:   []engine.Tmpfs{{Target: "/work", Bytes: 4 << 20}, {Target: "/tmp", Mode: 0o1777 | os.ModeSticky}, {Target: "/private", Mode: 0o700}},
			Outbox:  5 << 20, Workdir: "/work", ControlDir: "/control",
		},
		Root: "/root-of-image", Init: "/init-of-host", Volumes: []string{"/var/data", "/work"},
		HostsFile: "/etc-of-store/hosts", HostnameFile: "/etc-of-store/hostname",
		Cgroup: map[string]string{"memory": "/cg/memory", "pids": "/cg/pids"}, OOMScore: 7,
		Annotations: map[string]string{"a": "b"},
	}
}

func TestSpecIsAsRecorded(t *testing.T) {
	made, err := ocispec.New(usual())
	require.NoError(t, err)
	text, err := json.MarshalIndent(made, "", "  ")
	require.NoError(t, err)
	const golden = "testdata/config.json"
	if *update {
		require.NoError(t, os.WriteFile(golden, append(text, '\n'), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(text)+"\n")
}

func mountAt(t *testing.T, s *specs.Spec, target string) specs.Mount {
	t.Helper()
	at := slices.IndexFunc(s.Mounts, func(m specs.Mount) bool { return m.Destination == target })
	require.GreaterOrEqual(t, at, 0, target)
	return s.Mounts[at]
}

// Whatever a spec asks for, these hold.
func TestNoSpecOpensAContainer(t *testing.T) {
	for name, change := range map[string]func(*ocispec.Container){
		"usual":         func(*ocispec.Container) {},
		"nothing asked": func(c *ocispec.Container) { c.Spec = engine.Spec{User: "0:0", ControlDir: "/control"} },
		"image's init":  func(c *ocispec.Container) { c.ImageInit, c.Init = engine.InitProtocol, "" },
		"cgroup v2":     func(c *ocispec.Container) { c.Cgroup = map[string]string{"": "/cg"} },
		"runtime's cgroup": func(c *ocispec.Container) {
			c.Cgroup, c.CgroupsPath = nil, "/mcpx/o/r"
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := usual()
			change(&c)
			s, err := ocispec.New(c)
			require.NoError(t, err)
			require.True(t, s.Root.Readonly)
			require.True(t, s.Process.NoNewPrivileges)
			require.Equal(t, &specs.LinuxCapabilities{}, s.Process.Capabilities)
			require.Len(t, s.Linux.Namespaces, 6)
			for _, n := range s.Linux.Namespaces {
				require.Empty(t, n.Path, "a namespace that others are in")
			}
			require.Positive(t, *s.Linux.Resources.Memory.Limit)
			require.Equal(t, s.Linux.Resources.Memory.Limit, s.Linux.Resources.Memory.Swap)
			require.Positive(t, *s.Linux.Resources.Pids.Limit)
			require.Positive(t, *s.Linux.Resources.CPU.Quota)
			for _, m := range s.Mounts {
				require.Contains(t, m.Options, "nosuid", m.Destination)
				if !slices.Contains([]string{"/dev", "/dev/pts"}, m.Destination) {
					require.Contains(t, m.Options, "nodev", m.Destination)
				}
				if m.Type == "tmpfs" {
					require.True(t, slices.ContainsFunc(m.Options, func(o string) bool { return strings.HasPrefix(o, "size=") }), m.Destination)
				}
			}
			for _, target := range []string{engine.RunDir, "/sys", "/sys/fs/cgroup"} {
				m := mountAt(t, s, target)
				require.True(t, slices.Contains(m.Options, "ro") || m.Type == "tmpfs", target)
			}
		})
	}
}

func TestOuterMountsComeFirst(t *testing.T) {
	s, err := ocispec.New(usual())
	require.NoError(t, err)
	for n, m := range s.Mounts {
		for _, later := range s.Mounts[n+1:] {
			require.False(t, strings.HasPrefix(m.Destination, later.Destination+"/"), "%s before %s", m.Destination, later.Destination)
		}
	}
}

func TestHostDirectoryWinsOverTheImagesVolume(t *testing.T) {
	c := usual()
	c.Mounts = []engine.Mount{{Source: "/src", Target: "/var/data"}}
	s, err := ocispec.New(c)
	require.NoError(t, err)
	require.Equal(t, "/src", mountAt(t, s, "/var/data").Source)
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*ocispec.Container)
		is     error
	}{
		"user by name":     {func(c *ocispec.Container) { c.User = "nobody" }, errdefs.ErrInvalidArgument},
		"user without gid": {func(c *ocispec.Container) { c.User = "1000" }, errdefs.ErrInvalidArgument},
		"negative user":    {func(c *ocispec.Container) { c.User = "-1:1" }, errdefs.ErrInvalidArgument},
		"user too large":   {func(c *ocispec.Container) { c.User = "4294967295:0" }, errdefs.ErrInvalidArgument},
		"network":          {func(c *ocispec.Container) { c.Network = "host" }, errdefs.ErrNotImplemented},
		"no init":          {func(c *ocispec.Container) { c.Init = "" }, errdefs.ErrFailedPrecondition},
		"mount over /etc/hosts": {func(c *ocispec.Container) {
			c.Mounts = []engine.Mount{{Source: "/s", Target: "/etc/hosts"}}
		}, errdefs.ErrInvalidArgument},
		"tmpfs over the init": {func(c *ocispec.Container) {
			c.Tmpfs = []engine.Tmpfs{{Target: "/mcpx"}}
		}, errdefs.ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			made := usual()
			c.change(&made)
			_, err := ocispec.New(made)
			require.ErrorIs(t, err, c.is)
		})
	}
}
