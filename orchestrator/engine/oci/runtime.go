package oci

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"mcpx/orchestrator/engine/ocispec"
)

// ociRuntime is the program that makes containers.
type ociRuntime struct {
	name    string // crun or runc
	path    string
	version string
}

const crun = "crun"

// findRuntime looks for the one that is named, or for those that are known.
func findRuntime(name string) (ociRuntime, error) {
	names := []string{name}
	if name == "" {
		names = []string{crun, "runc"}
	}
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		return askVersion(path)
	}
	return ociRuntime{}, unavailable(strings.Join(names, " or ") + " is not to be found")
}

// askVersion takes a program's word for what it is.
func askVersion(path string) (ociRuntime, error) {
	out, err := exec.Command(path, "--version").Output()
	first, _, _ := strings.Cut(string(out), "\n")
	name, version, ok := strings.Cut(first, " version ")
	if err != nil || !ok {
		return ociRuntime{}, unavailable(fmt.Sprintf("%s does not tell its version: %q, %v", path, first, err))
	}
	return ociRuntime{name: name, path: path, version: name + " " + strings.TrimSpace(version)}, nil
}

// ownGroups tells whether the runtime is to make the cgroups. crun can leave
// that to us, which is quicker.
func (r ociRuntime) ownGroups() bool { return r.name != crun }

// command starts the container whose bundle is dir, and ends when it runs.
func (r ociRuntime) command(dir, id string) *exec.Cmd {
	args := []string{"--root", filepath.Join(dir, stateName), "--log", filepath.Join(dir, logName)}
	if !r.ownGroups() {
		args = append(args, "--cgroup-manager=disabled")
	}
	args = append(args, "run", "--detach", "--bundle", dir, "--pid-file", filepath.Join(dir, pidName), id)
	cmd := exec.Command(r.path, args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return cmd
}

// seccomp is the filter in the form that the runtime is quickest with.
type seccomp struct {
	profile     *specs.LinuxSeccomp
	annotations map[string]string
}

// bpfAnnotation has crun install a filter as it is.
const bpfAnnotation = "run.oci.seccomp_bpf_data"

func compile(r ociRuntime) (seccomp, error) {
	profile, err := ocispec.Profile()
	if err != nil || r.name != crun {
		return seccomp{profile: profile}, err
	}
	program, err := ocispec.Compile(profile)
	if err != nil {
		return seccomp{}, err
	}
	return seccomp{annotations: map[string]string{bpfAnnotation: base64.StdEncoding.EncodeToString(program)}}, nil
}

// ownScore is what no container's score may be below: lowering takes a privilege.
func ownScore() (int, error) {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, fmt.Errorf("oom score: %w", err)
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return max(score, 0), err
}
