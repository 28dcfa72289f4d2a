// Package ocispec builds the OCI configuration of a run's container, for every
// engine that hands one to an OCI runtime. It is pure: all that a container may
// and may not do is decided here.
package ocispec

import (
	"cmp"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"mcpx/orchestrator/engine"
)

// What a container gets where its Spec leaves a limit at zero.
const (
	DefaultMemory = 256 << 20
	DefaultCPUs   = 1.0
	DefaultPids   = 128
	DefaultNoFile = 1024
	DefaultShm    = 64 << 20
	DefaultTmpfs  = 64 << 20
)

// Hostname is the same everywhere, so that a script can't tell runs or machines apart by it.
const Hostname = "mcpx"

// Hosts is what /etc/hosts holds.
const Hosts = "127.0.0.1\tlocalhost " + Hostname + "\n::1\tlocalhost\n"

// version is the oldest that has all of this: crun 1.8 refuses those it does not know.
const version = "1.0.2"

// Container is one container to describe.
type Container struct {
	engine.Spec
	Root string // the root file system, used by many at a time
	Init string // mcpx-init of this machine, for images that carry none
	// Volumes are the image's: places that its programs write to.
	Volumes []string
	// HostsFile and HostnameFile become /etc/hosts and /etc/hostname; "" leaves
	// what the image has.
	HostsFile, HostnameFile string
	// CgroupsPath is the runtime's; it stays empty when the runtime makes none.
	CgroupsPath string
	// Cgroup is where the container's own cgroups lie on the host, by the
	// name they get below /sys/fs/cgroup; "" names the one of version 2.
	Cgroup map[string]string
	// Seccomp is left out when the runtime has the filter from elsewhere.
	Seccomp     *specs.LinuxSeccomp
	Annotations map[string]string
	OOMScore    int // init's oom_score_adj
}

// New describes c.
func New(c Container) (*specs.Spec, error) {
	user, err := ParseUser(c.User)
	if err != nil {
		return nil, err
	}
	if c.Network != engine.NetworkNone && c.Network != "" {
		return nil, fmt.Errorf("network %q: there is none to be had: %w", c.Network, errdefs.ErrNotImplemented)
	}
	mounts, err := c.mounts(user)
	if err != nil {
		return nil, err
	}
	return &specs.Spec{
		Version:     version,
		Hostname:    Hostname,
		Root:        &specs.Root{Path: c.Root, Readonly: true},
		Process:     c.process(user),
		Mounts:      mounts,
		Linux:       c.linux(),
		Annotations: c.Annotations,
	}, nil
}

func (c Container) process(user specs.User) *specs.Process {
	files := uint64(cmp.Or(c.Limits.NoFile, DefaultNoFile))
	score := c.OOMScore
	return &specs.Process{
		User: user,
		Args: []string{engine.InitPath},
		// For init alone: a job comes with all of its environment.
		Env:             []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Cwd:             cmp.Or(c.Workdir, "/"),
		Capabilities:    &specs.LinuxCapabilities{},
		NoNewPrivileges: true,
		OOMScoreAdj:     &score,
		Rlimits: []specs.POSIXRlimit{
			{Type: "RLIMIT_NOFILE", Soft: files, Hard: files},
			// The kernel would run the host's core_pattern.
			{Type: "RLIMIT_CORE"},
		},
	}
}

func (c Container) linux() *specs.Linux {
	return &specs.Linux{
		Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			{Type: specs.MountNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.CgroupNamespace},
		},
		CgroupsPath:   c.CgroupsPath,
		Resources:     Resources(c.Limits),
		Seccomp:       c.Seccomp,
		MaskedPaths:   masked(),
		ReadonlyPaths: readOnly(),
	}
}

// masked are files of the kernel's that tell of the host, or change it.
func masked() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
		"/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

func readOnly() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
