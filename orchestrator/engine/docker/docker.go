// Package docker is the engine that has a Docker daemon of this machine make
// the containers. It talks to the daemon's socket, with whatever version of
// the API that speaks.
package docker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
)

// Config has defaults for what is zero.
type Config struct {
	// Host is the daemon's socket: DefaultHost when empty. Containers mount
	// directories of this machine, so only unix sockets can be right.
	Host string
	// InitPath is mcpx-init on this machine, for images that carry none.
	InitPath string
	// StartTimeout bounds the time from a container's start to its init's greeting.
	StartTimeout time.Duration
	// PullTimeout bounds the fetching of one image.
	PullTimeout time.Duration
	Log         *slog.Logger
}

// Defaults of a Config.
const (
	DefaultHost         = "unix:///var/run/docker.sock"
	DefaultStartTimeout = 20 * time.Second
	DefaultPullTimeout  = 10 * time.Minute
)

// Engine makes containers with Docker.
type Engine struct {
	config Config
	client *client.Client

	mu     sync.Mutex
	images map[string]facts // by ID; what an ID stands for never changes
}

var _ engine.Engine = (*Engine)(nil)

// idleConns is how many connections to the daemon are kept; a run under way
// needs none.
const idleConns = 16

// New makes an Engine. The daemon need not run yet.
func New(c Config) (*Engine, error) {
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("docker engine: %w", err)
	}
	transport := &http.Transport{
		MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: 90 * time.Second,
	}
	cli, err := client.NewClientWithOpts(
		client.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}),
		client.WithHost(c.Host),
		client.WithAPIVersionNegotiation(),
	)
	if err != nil {
		return nil, fmt.Errorf("docker engine on %s: %w", c.Host, err)
	}
	return &Engine{config: c, client: cli, images: map[string]facts{}}, nil
}

func (c *Config) complete() error {
	if c.Host == "" {
		c.Host = DefaultHost
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = DefaultStartTimeout
	}
	if c.PullTimeout == 0 {
		c.PullTimeout = DefaultPullTimeout
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if !strings.HasPrefix(c.Host, "unix://") {
		return fmt.Errorf("host %s: only a unix:// socket is on the same machine as the directories to mount: %w",
			c.Host, errdefs.ErrInvalidArgument)
	}
	return link.CheckInit(c.InitPath)
}

// Name is "docker".
func (e *Engine) Name() string { return "docker" }

// Close drops the connections to the daemon.
func (e *Engine) Close() error { return e.client.Close() }

// minAPI is the first version with all that containers here are made of
// (Docker 20.10).
const minAPI = "1.41"

// negotiate settles the version of the API, once. It comes before the first
// question of any kind: the client's own negotiation is late for some calls,
// and not safe when two of them are the first.
func (e *Engine) negotiate(ctx context.Context) error {
	if err := e.client.NewVersionError(ctx, minAPI, "making containers for scripts"); err != nil {
		return e.fault(ctx, "docker's API", err)
	}
	return nil
}

// Info asks the daemon what it can do.
func (e *Engine) Info(ctx context.Context) (engine.Info, error) {
	if err := e.negotiate(ctx); err != nil {
		return engine.Info{}, err
	}
	version, err := e.client.ServerVersion(ctx)
	if err != nil {
		return engine.Info{}, e.fault(ctx, "version of docker", err)
	}
	info, err := e.client.Info(ctx)
	if err != nil {
		return engine.Info{}, e.fault(ctx, "facts of docker", err)
	}
	return engine.Info{
		Version: version.Version, OS: version.Os, Arch: version.Arch, Runtimes: runtimes(info),
		MemoryLimit: info.MemoryLimit, PidsLimit: info.PidsLimit, CPULimit: info.CPUCfsQuota,
		Seccomp: seccomp(info.SecurityOptions), GPU: gpu(info),
		Mounts: true, Enforces: true,
	}, nil
}

func runtimes(info system.Info) []string {
	names := slices.Sorted(maps.Keys(info.Runtimes))
	slices.SortStableFunc(names, func(a, b string) int {
		switch info.DefaultRuntime {
		case a:
			return -1
		case b:
			return 1
		}
		return 0
	})
	return names
}

// seccomp tells whether containers get a profile unless they ask for none.
func seccomp(options []string) bool {
	return slices.ContainsFunc(options, func(option string) bool {
		return strings.HasPrefix(option, "name=seccomp") && !strings.Contains(option, "profile=unconfined")
	})
}

func gpu(info system.Info) bool {
	_, nvidia := info.Runtimes["nvidia"]
	return nvidia || slices.ContainsFunc(info.DiscoveredDevices, func(d system.DeviceInfo) bool {
		return strings.Contains(d.ID, "/gpu")
	})
}
