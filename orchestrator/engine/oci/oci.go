// Package oci is the engine without a daemon: it unpacks images itself, mounts
// them once for all runs, and has crun (or runc) make each container from a
// configuration of ours.
//
// A living engine keeps its mounts in a mount namespace of its own, so nothing
// of them is seen on the host or left there when the process dies. What is
// left then, containers and cgroups, is found again below the names of their
// owner: <Dir>/run/<owner>/ and mcpx/<owner>/ in the cgroup file system.
package oci

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
	"mcpx/orchestrator/engine/ocispec"
)

// Config has defaults for what is zero, save Dir.
type Config struct {
	// Dir holds images and what containers need; several processes may share it.
	Dir string
	// Runtime is the OCI runtime: crun, else runc, when empty.
	Runtime string
	// InitPath is mcpx-init on this machine, for images that carry none.
	InitPath string
	// DockerHost is the socket of a Docker whose images are taken over:
	// DefaultDockerHost when empty. It may be that none answers.
	DockerHost string
	// StartTimeout bounds the time from a container's start to its init's greeting.
	StartTimeout time.Duration
	Log          *slog.Logger
}

// Defaults of a Config.
const (
	DefaultDockerHost   = "unix:///var/run/docker.sock"
	DefaultStartTimeout = 20 * time.Second
)

// Engine makes containers with an OCI runtime.
type Engine struct {
	config  Config
	runtime ociRuntime
	missing error // why there is no runtime
	groups  groups
	seccomp seccomp
	score   int // oom_score_adj of this process
	docker  *client.Client
	store   store
	life    *os.File // by which others see that the store is in use
	space   *space
	roots   roots
	// importing is held by who takes an image over.
	importing chan struct{}

	mu     sync.Mutex
	fresh  map[string]asked    // what references meant a moment ago
	owners map[string]struct{} // whose directories are to go in the end
}

var _ engine.Engine = (*Engine)(nil)

// New makes an Engine. A runtime that is missing is told by its methods.
func New(c Config) (*Engine, error) {
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("oci engine: %w", err)
	}
	e := &Engine{config: c, store: store{dir: c.Dir}, fresh: map[string]asked{}, owners: map[string]struct{}{}, importing: make(chan struct{}, 1)}
	if err := e.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("oci engine: %w", err), e.Close())
	}
	return e, nil
}

func (c *Config) complete() error {
	if os.Geteuid() != 0 {
		return noPrivilege("this user is not root")
	}
	if !filepath.IsAbs(c.Dir) || strings.ContainsAny(c.Dir, ":,\\") {
		return fmt.Errorf("directory %q: an absolute path without any of `:,\\` is needed: %w", c.Dir, errdefs.ErrInvalidArgument)
	}
	if c.DockerHost == "" {
		c.DockerHost = DefaultDockerHost
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = DefaultStartTimeout
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return link.CheckInit(c.InitPath)
}

func (e *Engine) open() (err error) {
	if err = e.store.open(); err != nil {
		return err
	}
	if e.life, err = e.store.enter(time.Now()); err != nil {
		return fmt.Errorf("image store %s: %w", e.config.Dir, err)
	}
	e.docker, err = client.NewClientWithOpts(client.WithHost(e.config.DockerHost), client.WithAPIVersionNegotiation())
	if err != nil {
		return fmt.Errorf("client of docker on %s: %w", e.config.DockerHost, err)
	}
	if e.score, err = ownScore(); err != nil {
		return err
	}
	if e.runtime, e.missing = findRuntime(e.config.Runtime); e.missing != nil {
		return nil
	}
	if e.groups, err = findGroups("/proc/self/mountinfo"); err != nil {
		return err
	}
	if e.seccomp, err = compile(e.runtime); err != nil {
		return err
	}
	if e.space, err = newSpace(e.config.Dir); err != nil {
		return err
	}
	e.roots = roots{space: e.space, store: e.store, dir: e.config.Dir, known: map[string]*root{}}
	return nil
}

// Name is "oci".
func (e *Engine) Name() string { return "oci" }

// Close lets go of the mounts; containers keep theirs. The directories of
// owners go if they are empty.
func (e *Engine) Close() error {
	var err error
	e.mu.Lock()
	for owner := range e.owners {
		err = errors.Join(err, e.leave(owner))
	}
	e.mu.Unlock()
	if e.space != nil {
		err = e.space.close()
	}
	if e.docker != nil {
		err = errors.Join(err, e.docker.Close())
	}
	if e.life != nil {
		err = errors.Join(err, e.life.Close())
	}
	return err
}

// ready tells whether containers can be made at all.
func (e *Engine) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return e.missing
}

// Info tells what the runtime and this kernel's cgroups can do.
func (e *Engine) Info(ctx context.Context) (engine.Info, error) {
	if err := e.ready(ctx); err != nil {
		return engine.Info{}, err
	}
	return engine.Info{
		Version: e.runtime.version, OS: "linux", Arch: runtime.GOARCH, Runtimes: []string{e.runtime.name},
		MemoryLimit: e.groups.has("memory"), PidsLimit: e.groups.has("pids"), CPULimit: e.groups.has("cpu"),
		Seccomp: true, Mounts: true, Enforces: true,
	}, nil
}

// hostFiles are what every container has as /etc/hosts and /etc/hostname.
func hostFiles() map[string]string {
	return map[string]string{"hosts": ocispec.Hosts, "hostname": ocispec.Hostname + "\n"}
}
