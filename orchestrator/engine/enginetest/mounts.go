package enginetest

import (
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

func mountChecks() []check {
	return []check{
		{"MountsShowTheHostsDirectory", mountsShow},
		{"MountsAreReadOnlyUnlessWritable", enforced(mountsReadOnly)},
		{"MountOfNothingLeavesNothing", mountOfNothing},
		{"OnlyDirectoriesAreMounted", enforced(onlyDirectories)},
		{"EnginesSocketIsNotMounted", enforced(engineSocket)},
		{"PlacesOfTheContainerAreNotCovered", enforced(placesNotCovered)},
	}
}

// shared makes a directory of the host that anybody may write in.
func (b *bench) shared() string {
	b.Helper()
	dir, err := os.MkdirTemp(b.Dir, "m")
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, os.RemoveAll(dir)) })
	require.NoError(b, os.Chmod(dir, 0o777))
	require.NoError(b, os.WriteFile(filepath.Join(dir, "theirs"), []byte("seen"), 0o644))
	return dir
}

func mountsShow(b *bench) {
	if !b.info.Mounts {
		spec := b.spec("sh")
		spec.Mounts = []engine.Mount{{Source: b.shared(), Target: "/mnt/x"}}
		_, err := b.Engine.Prepare(b.Context(), spec)
		require.Error(b, err, "Info says that it mounts nothing")
		return
	}
	dir := b.shared()
	spec := b.spec("sh")
	spec.Mounts = []engine.Mount{{Source: dir, Target: "/mnt/x", Writable: true}}
	job := shell(`cat "$X/theirs"; echo made > "$X/ours"`)
	job.Env = append(job.Env, "X=/mnt/x")
	r := b.run(b.prepare(spec), job)
	b.exits(r, 0)
	require.Equal(b, "seen", r.stdout)
	made, err := os.ReadFile(filepath.Join(dir, "ours"))
	require.NoError(b, err)
	require.Equal(b, "made\n", string(made))
}

func mountsReadOnly(b *bench) {
	dir := b.shared()
	spec := b.spec("sh")
	spec.Mounts = []engine.Mount{{Source: dir, Target: "/mnt/x"}}
	r := b.run(b.prepare(spec), shell(`cat /mnt/x/theirs; (: > /mnt/x/new) 2> /dev/null && echo made; (: > /mnt/x/theirs) 2> /dev/null && echo cut; exit 0`))
	b.exits(r, 0)
	require.Equal(b, "seen", r.stdout)
	require.NoFileExists(b, filepath.Join(dir, "new"))
}

func mountOfNothing(b *bench) {
	spec := b.spec("sh")
	missing := filepath.Join(b.Dir, "not-there")
	spec.Mounts = []engine.Mount{{Source: missing, Target: "/mnt/x"}}
	_, err := b.Engine.Prepare(b.Context(), spec)
	require.ErrorContains(b, err, missing)
	require.NoDirExists(b, missing)
}

func onlyDirectories(b *bench) {
	spec := b.spec("sh")
	spec.Mounts = []engine.Mount{{Source: filepath.Join(b.shared(), "theirs"), Target: "/mnt/x"}}
	_, err := b.Engine.Prepare(b.Context(), spec)
	require.ErrorIs(b, err, errdefs.ErrInvalidArgument)
}

func engineSocket(b *bench) {
	link := filepath.Join(b.shared(), "link")
	require.NoError(b, os.Symlink("/var/run", link))
	for _, source := range []string{"/", "/run", "/var/run", "/var/run/docker.sock", link} {
		spec := b.spec("sh")
		spec.Mounts = []engine.Mount{{Source: source, Target: "/mnt/x"}}
		_, err := b.Engine.Prepare(b.Context(), spec)
		require.Error(b, err, source)
	}
}

func placesNotCovered(b *bench) {
	for _, target := range []string{"/", "relative", "/a/../b", "/proc", "/sys/fs", "/dev", "/mcpx", engine.InitPath, engine.RunDir, engine.JobDir, engine.OutboxDir} {
		mounted, covered := b.spec("sh"), b.spec("sh")
		mounted.Mounts = []engine.Mount{{Source: b.shared(), Target: target}}
		covered.Tmpfs = []engine.Tmpfs{{Target: target}}
		_, err := b.Engine.Prepare(b.Context(), mounted)
		require.Error(b, err, "mount at %s", target)
		_, err = b.Engine.Prepare(b.Context(), covered)
		require.Error(b, err, "tmpfs at %s", target)
	}
}
