package ocispec

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"mcpx/orchestrator/engine"
)

// cpuPeriod is the scheduler's own default, in microseconds; leastQuota is the
// least that it takes.
const (
	cpuPeriod  = 100_000
	leastQuota = 1000
)

// Resources are the limits of a container's cgroup, none of them left open.
func Resources(l engine.Limits) *specs.LinuxResources {
	memory := cmp.Or(l.MemoryBytes, DefaultMemory)
	period, quota := uint64(cpuPeriod), max(int64(cmp.Or(l.CPUs, DefaultCPUs)*cpuPeriod), leastQuota)
	pids := cmp.Or(l.Pids, DefaultPids) + engine.InitThreads
	return &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &memory, Swap: &memory}, // the sum of both: no swap
		CPU:    &specs.LinuxCPU{Period: &period, Quota: &quota},
		Pids:   &specs.LinuxPids{Limit: &pids},
	}
}

// ParseUser reads a Spec.User, which is numeric: names are the image's business.
func ParseUser(text string) (specs.User, error) {
	uid, gid, ok := strings.Cut(text, ":")
	u, uidErr := strconv.ParseUint(uid, 10, 31)
	g, gidErr := strconv.ParseUint(gid, 10, 31)
	if !ok || uidErr != nil || gidErr != nil {
		return specs.User{}, fmt.Errorf("user %q is not numeric, as in 65532:65532: %w", text, errdefs.ErrInvalidArgument)
	}
	return specs.User{UID: uint32(u), GID: uint32(g)}, nil
}
