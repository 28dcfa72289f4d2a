package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
	"mcpx/orchestrator/engine/ocispec"
	"mcpx/orchestrator/run"
)

// removeTimeout bounds the removal of what a failed Prepare has made.
const removeTimeout = 30 * time.Second

// What the directory of a container holds.
const (
	bundleName = "config.json"
	stateName  = "state"
	logName    = "log"
	pidName    = "pid"
)

// Prepare writes the container's configuration, starts it, and waits for the
// greeting of its init.
func (e *Engine) Prepare(ctx context.Context, spec engine.Spec) (engine.Container, error) {
	c, err := e.create(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("container for run %s: %w", spec.Run, err)
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.discard(ctx))
	}
	return c, nil
}

// create makes all of a container but its processes.
func (e *Engine) create(ctx context.Context, spec engine.Spec) (*Container, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	if err := checkNames(spec); err != nil {
		return nil, err
	}
	if err := e.checkSources(spec.Mounts); err != nil {
		return nil, err
	}
	if _, err := os.Stat(spec.ControlDir); err != nil {
		return nil, err
	}
	i, err := e.image(ctx, spec.Image)
	if err != nil {
		return nil, err
	}
	c := e.container(spec)
	described, err := c.describe(i)
	if err != nil {
		return nil, err
	}
	root, release, err := e.roots.hold(i, described.Mounts)
	if err != nil {
		return nil, err
	}
	c.release = release
	described.Root.Path = root
	if err := c.claim(); err != nil {
		release()
		return nil, err
	}
	if err := c.make(described); err != nil {
		return nil, errors.Join(err, c.discard(ctx))
	}
	return c, nil
}

// maxName leaves room for what is put before a name.
const maxName = 100

// checkNames sees that they can be those of directories.
func checkNames(spec engine.Spec) error {
	for _, name := range []string{spec.Owner, spec.Run} {
		odd := strings.ContainsFunc(name, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
		})
		if odd || name == "" || len(name) > maxName {
			return fmt.Errorf("owner %q, run %q: names are of letters, digits, `_` and `-`: %w", spec.Owner, spec.Run, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

func (e *Engine) container(spec engine.Spec) *Container {
	id := ours + "-" + spec.Run
	return &Container{
		engine: e, id: id, spec: spec,
		dir: e.store.path("run", spec.Owner, id), group: e.groups.group(spec.Owner, id),
		removed: make(chan struct{}), release: func() {},
	}
}

func (c *Container) describe(i image) (*specs.Spec, error) {
	e := c.engine
	d := ocispec.Container{
		Spec: c.spec, Init: e.config.InitPath, Volumes: i.Volumes,
		HostsFile: e.store.path("etc", "hosts"), HostnameFile: e.store.path("etc", "hostname"),
		Seccomp: e.seccomp.profile, Annotations: e.seccomp.annotations, OOMScore: e.score,
	}
	if e.runtime.ownGroups() {
		d.CgroupsPath = "/" + c.group.path
	} else {
		d.Cgroup = c.group.dirs()
	}
	return ocispec.New(d)
}

// claim makes the directory, by which a container is found again. It comes
// before all else, and one that is there already is somebody else's.
func (c *Container) claim() error {
	c.engine.mu.Lock()
	c.engine.owners[c.spec.Owner] = struct{}{}
	c.engine.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(c.dir), 0o700); err != nil {
		return err
	}
	err := os.Mkdir(c.dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("there is one of that name: %w", errdefs.ErrAlreadyExists)
	}
	return err
}

// make writes the bundle, and makes the cgroup where that is not the runtime's to do.
func (c *Container) make(described *specs.Spec) error {
	text, err := json.Marshal(described)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.dir, bundleName), text, 0o600); err != nil {
		return err
	}
	if c.engine.runtime.ownGroups() {
		return nil
	}
	return c.group.make(described.Linux.Resources)
}

// start goes from the described container to the one whose init waits.
func (c *Container) start(ctx context.Context) error {
	limit := c.engine.config.StartTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &run.Error{
		Code: run.CodeEngineUnavailable, Class: errdefs.ErrUnavailable,
		Message: fmt.Sprintf("the container for run %s was not ready within %s", c.spec.Run, limit),
		Hint:    "the machine may be overloaded; `mcpx doctor` tries a container",
	})
	defer cancel()
	if err := c.spawn(); err != nil {
		return fmt.Errorf("start container for run %s: %w", c.spec.Run, err)
	}
	return c.connect(ctx)
}

// spawn starts the runtime in the engine's mount namespace and, where that is
// for us to do, in the container's cgroup.
func (c *Container) spawn() error {
	cmd := c.engine.runtime.command(c.dir, c.id)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err := c.engine.space.run(func() error {
		if c.engine.runtime.ownGroups() {
			return cmd.Start()
		}
		return c.startInGroup(cmd)
	})
	if err != nil {
		return err
	}
	c.runtime, c.started = cmd.Process, make(chan struct{})
	go func() {
		defer close(c.started)
		c.startErr = c.startEnded(cmd.Wait())
	}()
	return nil
}

func (c *Container) startInGroup(cmd *exec.Cmd) error {
	if c.engine.groups.v2 == "" {
		if err := c.group.join(); err != nil {
			return err
		}
		return cmd.Start()
	}
	dir, err := os.Open(c.group.dirs()[""])
	if err != nil {
		return err
	}
	defer dir.Close()
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return cmd.Start()
}

// startEnded finds the container's first process when the runtime has ended.
func (c *Container) startEnded(err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w: %s", c.engine.runtime.name, err, c.said())
	}
	c.init, err = c.findInit()
	if errors.Is(err, errEnded) {
		return c.notRunnable("code unknown")
	}
	return err
}

// maxSaid bounds what is passed on of a runtime's words.
const maxSaid = 2000

// said is what the runtime wrote into its log.
func (c *Container) said() string {
	text, err := os.ReadFile(filepath.Join(c.dir, logName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err.Error()
	}
	said := strings.TrimSpace(string(text))
	return said[:min(len(said), maxSaid)]
}

// connect waits for init's greeting, or for the container's end.
func (c *Container) connect(ctx context.Context) error {
	var err error
	if c.link, err = link.Await(ctx, c.spec.Control, c.exits); err != nil {
		return fmt.Errorf("init of the container for run %s: %w", c.spec.Run, err)
	}
	for _, problem := range c.link.Problems() {
		c.engine.config.Log.Warn("init runs without something", "run", c.spec.Run, "problem", problem)
	}
	return nil
}

// exits returns why the container ended, or nil when ctx has ended first.
func (c *Container) exits(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.started:
	}
	if c.startErr != nil {
		return c.startErr
	}
	if err := c.init.wait(ctx); err != nil {
		return nil // ctx has ended
	}
	return c.notRunnable(c.init.ending())
}

// notRunnable is that init ended before it connected. Where it could not even
// be started the runtime has written why.
func (c *Container) notRunnable(ending string) error {
	from := c.engine.config.InitPath
	if c.spec.ImageInit == engine.InitProtocol {
		from = engine.InitPath + " of image " + c.spec.Image
	}
	return &run.Error{
		Code: run.CodeInternal, Class: errdefs.ErrFailedPrecondition,
		Message: fmt.Sprintf("%s ended at once (%s)", from, cmp.Or(c.said(), ending)),
		Hint:    "it has to be a static mcpx-init for this machine: `" + from + " version` shows whether it runs",
	}
}

// discard removes what a failed Prepare has made.
func (c *Container) discard(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	return c.Remove(ctx)
}
