package docker

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-units"

	"mcpx/orchestrator/engine"
)

// What a container gets where its Spec leaves a limit at zero.
const (
	defaultMemory = 256 << 20
	defaultCPUs   = 1.0
	defaultPids   = 128
	defaultNoFile = 1024
	defaultShm    = 64 << 20
	defaultTmpfs  = 64 << 20
)

// hostname is the same everywhere, so that a script can't tell runs or machines apart by it.
const hostname = "mcpx"

// cpuPeriod is the scheduler's own default, in microseconds.
const cpuPeriod = 100_000

// hostsName is the file of a control directory that becomes /etc/hosts.
const hostsName = "hosts"

const hosts = "127.0.0.1\tlocalhost " + hostname + "\n::1\tlocalhost\n"

// request is what docker is asked to make.
type request struct {
	config *container.Config
	host   *container.HostConfig
}

// newRequest puts spec into docker's terms. It is pure: everything that a
// container may and may not do is decided here.
func newRequest(spec engine.Spec, image facts, initPath string) (request, error) {
	owner, err := parseUser(spec.User)
	if err != nil {
		return request{}, err
	}
	if spec.Network != engine.NetworkNone && spec.Network != "" {
		return request{}, fmt.Errorf("network %q: docker containers get none: %w", spec.Network, errdefs.ErrNotImplemented)
	}
	mounts, err := mountsOf(spec, initPath)
	if err != nil {
		return request{}, err
	}
	tmpfs, err := tmpfsOf(spec, image.volumes, owner)
	if err != nil {
		return request{}, err
	}
	return request{config: configOf(spec, image.id), host: hostConfigOf(spec, mounts, tmpfs)}, nil
}

func configOf(spec engine.Spec, image string) *container.Config {
	return &container.Config{
		// From the ID: what was looked at is what runs.
		Image:      image,
		Hostname:   hostname,
		User:       spec.User,
		WorkingDir: cmp.Or(spec.Workdir, "/"),
		Entrypoint: []string{engine.InitPath},
		Labels:     map[string]string{engine.LabelOwner: spec.Owner, engine.LabelRun: spec.Run},
		// An image's own check would run beside the script.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		// The container gets a network namespace with nothing but loopback either
		// way. With this, docker leaves out its own bookkeeping of networks, which
		// is half of a start (150 ms against 75).
		NetworkDisabled: true,
	}
}

func hostConfigOf(spec engine.Spec, mounts []mount.Mount, tmpfs map[string]string) *container.HostConfig {
	var no bool
	return &container.HostConfig{
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges"},
		NetworkMode:    container.NetworkMode(engine.NetworkNone),
		IpcMode:        container.IPCModePrivate,
		CgroupnsMode:   container.CgroupnsModePrivate,
		LogConfig:      container.LogConfig{Type: "none"},
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		// Removal by docker itself would take along whether memory ran out.
		AutoRemove: false,
		Init:       &no,
		ShmSize:    cmp.Or(spec.Limits.ShmBytes, defaultShm),
		Mounts:     mounts,
		Tmpfs:      tmpfs,
		Resources:  resourcesOf(spec.Limits),
	}
}

func resourcesOf(l engine.Limits) container.Resources {
	var no bool
	memory := cmp.Or(l.MemoryBytes, defaultMemory)
	pids := cmp.Or(l.Pids, defaultPids) + engine.InitThreads
	files := cmp.Or(l.NoFile, defaultNoFile)
	return container.Resources{
		Memory:         memory,
		MemorySwap:     memory, // the sum of both: no swap
		OomKillDisable: &no,
		// Not NanoCPUs: with those docker refuses more than the machine has,
		// and a policy is not written for one machine.
		CPUPeriod: cpuPeriod,
		CPUQuota:  max(int64(cmp.Or(l.CPUs, defaultCPUs)*cpuPeriod), 1000),
		PidsLimit: &pids,
		Ulimits:   []*container.Ulimit{(*container.Ulimit)(&units.Ulimit{Name: "nofile", Soft: files, Hard: files})},
	}
}

// user is a Spec.User in its parts.
type user struct{ uid, gid uint32 }

func parseUser(text string) (user, error) {
	uid, gid, ok := strings.Cut(text, ":")
	u, uidErr := strconv.ParseUint(uid, 10, 31)
	g, gidErr := strconv.ParseUint(gid, 10, 31)
	if !ok || uidErr != nil || gidErr != nil {
		return user{}, fmt.Errorf("user %q is not numeric, as in 65532:65532: %w", text, errdefs.ErrInvalidArgument)
	}
	return user{uint32(u), uint32(g)}, nil
}

func mountsOf(spec engine.Spec, initPath string) ([]mount.Mount, error) {
	mounts := []mount.Mount{
		readOnly(spec.ControlDir, engine.RunDir),
		readOnly(filepath.Join(spec.ControlDir, hostsName), "/etc/hosts"),
	}
	if spec.ImageInit != engine.InitProtocol {
		if initPath == "" {
			return nil, fmt.Errorf("image %s carries no init of protocol %s, and the engine has none to mount: %w",
				spec.Image, engine.InitProtocol, errdefs.ErrFailedPrecondition)
		}
		mounts = append(mounts, readOnly(initPath, engine.InitPath))
	}
	for _, m := range spec.Mounts {
		if err := checkTarget(m.Target); err != nil {
			return nil, err
		}
		bind := readOnly(m.Source, m.Target)
		if m.Writable {
			bind.ReadOnly, bind.BindOptions.NonRecursive = false, false
		}
		mounts = append(mounts, bind)
	}
	return mounts, nil
}

// readOnly binds source alone: what is mounted below it would be writable
// with daemons before 25.
func readOnly(source, target string) mount.Mount {
	return mount.Mount{
		Type: mount.TypeBind, Source: source, Target: target, ReadOnly: true,
		BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate, NonRecursive: true},
	}
}

func tmpfsOf(spec engine.Spec, volumes []string, owner user) (map[string]string, error) {
	all := map[string]string{}
	for _, v := range volumes {
		all[path.Clean(v)] = tmpfsOptions(engine.Tmpfs{}, owner, "exec")
	}
	for _, m := range spec.Mounts {
		delete(all, path.Clean(m.Target))
	}
	for _, t := range spec.Tmpfs {
		if err := checkTarget(t.Target); err != nil {
			return nil, err
		}
		all[t.Target] = tmpfsOptions(t, owner, "exec")
	}
	if spec.Outbox > 0 {
		all[engine.OutboxDir] = tmpfsOptions(engine.Tmpfs{Bytes: spec.Outbox}, owner, "noexec")
	}
	return all, nil
}

// tmpfsOptions names the owner, because runc gives a tmpfs the mode of the
// image's directory that it covers, and that may be root's and closed.
func tmpfsOptions(t engine.Tmpfs, owner user, exec string) string {
	mode := uint32(t.Mode.Perm())
	if t.Mode == 0 {
		mode = 0o1777
	} else if t.Mode&fs.ModeSticky != 0 {
		mode |= 0o1000
	}
	return fmt.Sprintf("rw,nosuid,nodev,%s,size=%d,mode=%o,uid=%d,gid=%d",
		exec, cmp.Or(t.Bytes, defaultTmpfs), mode, owner.uid, owner.gid)
}

// checkTarget keeps mounts off the places that isolation rests on, and ours.
func checkTarget(target string) error {
	if !path.IsAbs(target) || path.Clean(target) != target || target == "/" {
		return fmt.Errorf("mount at %q: not a clean absolute path: %w", target, errdefs.ErrInvalidArgument)
	}
	for _, taken := range []string{engine.RunDir, path.Dir(engine.InitPath), engine.OutboxDir, "/proc", "/sys", "/dev", "/etc/hosts"} {
		if target == taken || strings.HasPrefix(target, taken+"/") {
			return fmt.Errorf("mount at %s: %s is not for mounts: %w", target, taken, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}
