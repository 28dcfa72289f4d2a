package ocispec

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"mcpx/orchestrator/engine"
)

const cgroupDir = "/sys/fs/cgroup"

// mounts are those of the kernel's, then the run's, outer ones first.
func (c Container) mounts(user specs.User) ([]specs.Mount, error) {
	own, err := c.ownMounts(user)
	if err != nil {
		return nil, err
	}
	return slices.Concat(c.kernelMounts(), own), nil
}

func (c Container) kernelMounts() []specs.Mount {
	shm := fmt.Sprintf("size=%d", cmp.Or(c.Limits.ShmBytes, DefaultShm))
	all := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", shm}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
	}
	return append(all, c.cgroupMounts()...)
}

// cgroupMounts show a container its own cgroups and nothing above them. Bound
// one by one they cost less than the kernel's own cgroup mounts.
func (c Container) cgroupMounts() []specs.Mount {
	if dir, ok := c.Cgroup[""]; ok {
		return []specs.Mount{bind(dir, cgroupDir, "ro", "noexec")}
	}
	if len(c.Cgroup) == 0 {
		return []specs.Mount{{Destination: cgroupDir, Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}}}
	}
	all := []specs.Mount{{Destination: cgroupDir, Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "nodev", "mode=755", "size=64k"}}}
	for _, name := range slices.Sorted(maps.Keys(c.Cgroup)) {
		all = append(all, bind(c.Cgroup[name], path.Join(cgroupDir, name), "ro", "noexec"))
	}
	return all
}

// bind mounts source alone: what is mounted below it stays outside.
func bind(source, target string, options ...string) specs.Mount {
	return specs.Mount{
		Destination: target, Type: "bind", Source: source,
		Options: append([]string{"bind", "rprivate", "nosuid", "nodev"}, options...),
	}
}

// ownMounts are sorted, so that each follows what it lies in.
func (c Container) ownMounts(user specs.User) ([]specs.Mount, error) {
	all := map[string]specs.Mount{}
	add := func(m specs.Mount) { all[m.Destination] = m }
	for _, volume := range c.Volumes {
		add(tmpfs(engine.Tmpfs{Target: path.Clean("/" + volume)}, user))
	}
	for _, t := range c.Tmpfs {
		if err := CheckTarget(t.Target); err != nil {
			return nil, err
		}
		add(tmpfs(t, user))
	}
	for _, m := range c.Mounts {
		if err := CheckTarget(m.Target); err != nil {
			return nil, err
		}
		add(hostMount(m))
	}
	if err := c.addPlaces(add, user); err != nil {
		return nil, err
	}
	return inOrder(all), nil
}

// hostMount brings along what is mounted below a directory only where a script
// may write anyway: runtimes make but the topmost mount read-only.
func hostMount(m engine.Mount) specs.Mount {
	if m.Writable {
		out := bind(m.Source, m.Target, "rw")
		out.Options[0] = "rbind"
		return out
	}
	return bind(m.Source, m.Target, "ro")
}

// addPlaces adds those that every container has.
func (c Container) addPlaces(add func(specs.Mount), user specs.User) error {
	add(bind(c.ControlDir, engine.RunDir, "ro")) // a job may bring programs
	for target, source := range map[string]string{"/etc/hosts": c.HostsFile, "/etc/hostname": c.HostnameFile} {
		if source != "" {
			add(bind(source, target, "ro", "noexec"))
		}
	}
	if c.Outbox > 0 {
		box := tmpfs(engine.Tmpfs{Target: engine.OutboxDir, Bytes: c.Outbox}, user)
		box.Options = append(box.Options, "noexec")
		add(box)
	}
	if c.ImageInit == engine.InitProtocol {
		return nil
	}
	if c.Init == "" {
		return fmt.Errorf("image %s carries no init of protocol %s, and the engine has none to mount: %w",
			c.Image, engine.InitProtocol, errdefs.ErrFailedPrecondition)
	}
	add(bind(c.Init, engine.InitPath, "ro"))
	return nil
}

func inOrder(all map[string]specs.Mount) []specs.Mount {
	return slices.SortedFunc(maps.Values(all), func(a, b specs.Mount) int {
		return cmp.Or(cmp.Compare(strings.Count(a.Destination, "/"), strings.Count(b.Destination, "/")),
			cmp.Compare(a.Destination, b.Destination))
	})
}

// tmpfs names the owner, because a runtime may give a tmpfs the mode of the
// image's directory that it covers, and that may be root's and closed.
func tmpfs(t engine.Tmpfs, user specs.User) specs.Mount {
	mode := uint32(t.Mode.Perm())
	if t.Mode == 0 {
		mode = 0o1777
	} else if t.Mode&fs.ModeSticky != 0 {
		mode |= 0o1000
	}
	return specs.Mount{Destination: t.Target, Type: "tmpfs", Source: "tmpfs", Options: []string{
		"nosuid", "nodev", fmt.Sprintf("size=%d", cmp.Or(t.Bytes, DefaultTmpfs)), fmt.Sprintf("mode=%o", mode),
		fmt.Sprintf("uid=%d", user.UID), fmt.Sprintf("gid=%d", user.GID),
	}}
}

// CheckTarget keeps mounts off the places that isolation rests on, and ours.
func CheckTarget(target string) error {
	if !path.IsAbs(target) || path.Clean(target) != target || target == "/" {
		return fmt.Errorf("mount at %q: not a clean absolute path: %w", target, errdefs.ErrInvalidArgument)
	}
	for _, taken := range []string{engine.RunDir, path.Dir(engine.InitPath), engine.OutboxDir, "/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname"} {
		if target == taken || strings.HasPrefix(target, taken+"/") {
			return fmt.Errorf("mount at %s: %s is not for mounts: %w", target, taken, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}
