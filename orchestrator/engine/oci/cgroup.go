package oci

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// groups is where this machine's cgroups are made.
type groups struct {
	v2    string            // mount of version 2, when its controllers are there
	v1    map[string]string // mounts of version 1, by controller
	other []string          // all mounts of version 1, for runtimes that use them all
}

// ours is the cgroup that has all of mcpx's.
const ours = "mcpx"

// used are the controllers that limit a container.
func used() []string { return []string{"memory", "cpu", "pids"} }

// findGroups reads a mountinfo file.
func findGroups(mountinfo string) (groups, error) {
	g := groups{v1: map[string]string{}}
	file, err := os.Open(mountinfo)
	if err != nil {
		return g, fmt.Errorf("cgroup mounts: %w", err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		switch at := fields[4]; kind[0] {
		case "cgroup2":
			if hasControllers(at) {
				g.v2 = at
			}
		case "cgroup":
			g.other = append(g.other, at)
			for _, option := range strings.Split(kind[2], ",") {
				if slices.Contains(used(), option) {
					g.v1[option] = at
				}
			}
		}
	}
	if g.v2 == "" && len(g.v1) == 0 {
		return g, fmt.Errorf("cgroups: none are mounted, so nothing could be limited: %w", errdefs.ErrUnavailable)
	}
	if len(g.v1) > 0 {
		g.v2 = "" // a hybrid, whose controllers are in version 1
	}
	return g, nil
}

func hasControllers(mount string) bool {
	text, err := os.ReadFile(filepath.Join(mount, "cgroup.controllers"))
	return err == nil && strings.Contains(string(text), "memory")
}

func (g groups) has(controller string) bool {
	if g.v2 == "" {
		return g.v1[controller] != ""
	}
	text, err := os.ReadFile(filepath.Join(g.v2, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(text)), controller)
}

// group is the cgroup of one container, in one directory for each hierarchy.
type group struct {
	groups
	path string // below the mounts
}

func (g groups) group(owner, id string) group {
	return group{g, filepath.Join(ours, owner, id)}
}

// dirs are those that limit, by controller; "" is version 2's only one.
func (g group) dirs() map[string]string {
	if g.v2 != "" {
		return map[string]string{"": filepath.Join(g.v2, g.path)}
	}
	all := map[string]string{}
	for name, mount := range g.v1 {
		all[name] = filepath.Join(mount, g.path)
	}
	return all
}

// every is all directories that a runtime may have made.
func (g group) every() []string {
	if g.v2 != "" {
		return []string{filepath.Join(g.v2, g.path)}
	}
	var all []string
	for _, mount := range g.other {
		all = append(all, filepath.Join(mount, g.path))
	}
	return all
}

// make makes the cgroup with its limits.
func (g group) make(r *specs.LinuxResources) error {
	for name, dir := range g.dirs() {
		if err := g.makeDir(dir); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		if err := write(dir, limits(name, r)); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	return nil
}

// makeDir makes dir; what is above it is there from the second container on.
func (g group) makeDir(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if g.v2 != "" {
		if err := g.delegate(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return os.Mkdir(dir, 0o755)
}

// delegate hands version 2's controllers down to what is below dir.
func (g group) delegate(dir string) error {
	rel, err := filepath.Rel(g.v2, dir)
	if err != nil {
		return err
	}
	at := g.v2
	for _, name := range append([]string{"."}, strings.Split(rel, "/")...) {
		at = filepath.Join(at, name)
		err := os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+memory +cpu +pids"), 0)
		if err != nil {
			return err
		}
	}
	return nil
}

// setting is a file of a cgroup with its value.
type setting struct {
	file, value string
	optional    bool // kernels may lack it
}

// limits puts r into a controller's terms.
func limits(controller string, r *specs.LinuxResources) []setting {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	memory, pids := number(*r.Memory.Limit), number(*r.Pids.Limit)
	quota, period := number(*r.CPU.Quota), strconv.FormatUint(*r.CPU.Period, 10)
	switch controller {
	case "memory":
		return []setting{{"memory.limit_in_bytes", memory, false}, {"memory.memsw.limit_in_bytes", memory, true}}
	case "cpu":
		return []setting{{"cpu.cfs_period_us", period, false}, {"cpu.cfs_quota_us", quota, false}}
	case "pids":
		return []setting{{"pids.max", pids, false}}
	}
	return []setting{
		{"memory.max", memory, false}, {"memory.swap.max", "0", true},
		{"cpu.max", quota + " " + period, false}, {"pids.max", pids, false},
	}
}

func write(dir string, all []setting) error {
	for _, s := range all {
		err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.value), 0)
		if err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// join puts the calling thread into the cgroup of version 1; its children are
// born there, so there is no moment in which they are without limits.
func (g group) join() error {
	for _, dir := range g.dirs() {
		if err := os.WriteFile(filepath.Join(dir, "tasks"), []byte("0"), 0); err != nil {
			return fmt.Errorf("enter the cgroup: %w", err)
		}
	}
	return nil
}

// oomKills counts the processes that the memory limit has killed.
func (g group) oomKills() (int, error) {
	name := filepath.Join(g.v1["memory"], g.path, "memory.oom_control")
	if g.v2 != "" {
		name = filepath.Join(g.v2, g.path, "memory.events")
	} else if g.v1["memory"] == "" {
		return 0, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("memory of the cgroup: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if count, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			return strconv.Atoi(count)
		}
	}
	return 0, fmt.Errorf("%s does not tell of kills: %w", name, errdefs.ErrInternal)
}

// procs are the processes in the cgroup.
func (g group) procs() ([]int, error) {
	dirs := g.dirs()
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		text, err := os.ReadFile(filepath.Join(dirs[name], "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("processes of the cgroup: %w", err)
		}
		var all []int
		for _, word := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				return nil, fmt.Errorf("processes of the cgroup: %w", err)
			}
			all = append(all, pid)
		}
		return all, nil
	}
	return nil, nil
}

// holds tells whether pid is in the cgroup.
func (g group) holds(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(strings.TrimSpace(line), ":/"+g.path) {
			return true
		}
	}
	return false
}

const (
	emptyTries = 400
	emptyPause = 5 * time.Millisecond
)

// empty kills what is in the cgroup until nothing is.
func (g group) empty() error {
	for range emptyTries {
		pids, err := g.procs()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := g.kill(pid); err != nil {
				return err
			}
		}
		time.Sleep(emptyPause)
	}
	return fmt.Errorf("processes in cgroup %s do not end: %w", g.path, errdefs.ErrUnavailable)
}

// kill kills pid if it is still who is meant.
func (g group) kill(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return ended(err)
	}
	defer unix.Close(fd)
	if !g.holds(pid) {
		return nil
	}
	return ended(unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
}

// ended makes nothing of a process that is no more.
func ended(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// remove removes the directories. One is busy until its last process is reaped.
func (g group) remove(dirs []string) error {
	for _, dir := range dirs {
		err := unix.Rmdir(dir)
		for try := 0; errors.Is(err, unix.EBUSY) && try < emptyTries; try++ {
			time.Sleep(time.Millisecond)
			err = unix.Rmdir(dir)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
	}
	return nil
}
