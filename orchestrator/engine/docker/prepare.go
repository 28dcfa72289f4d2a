package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
	"mcpx/orchestrator/run"
)

const (
	createTimeout = 30 * time.Second
	// removeTimeout bounds the removal of what a failed Prepare has made.
	removeTimeout = 30 * time.Second
	// watchAfter is how long init is given before docker is asked whether it
	// lives: long enough that the usual start does not pay for the question.
	watchAfter = 250 * time.Millisecond
)

// Prepare needs two answers of the daemon, to create and to start; everything
// else on its way is done here.
func (e *Engine) Prepare(ctx context.Context, spec engine.Spec) (engine.Container, error) {
	asked, err := e.request(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("container for run %s: %w", spec.Run, err)
	}
	c, err := e.create(ctx, spec, asked)
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.discard(ctx))
	}
	return c, nil
}

func (e *Engine) request(ctx context.Context, spec engine.Spec) (request, error) {
	if err := ctx.Err(); err != nil {
		return request{}, context.Cause(ctx)
	}
	if err := e.negotiate(ctx); err != nil {
		return request{}, err
	}
	if err := e.checkSources(spec.Mounts); err != nil {
		return request{}, err
	}
	image, err := e.facts(ctx, spec.Image)
	if err != nil {
		return request{}, err
	}
	asked, err := newRequest(spec, image, e.config.InitPath)
	if err != nil {
		return request{}, err
	}
	return asked, writeHosts(spec.ControlDir)
}

// writeHosts lets "localhost" be found: docker, with the network disabled,
// leaves an image's /etc/hosts as it is, mostly empty.
func writeHosts(controlDir string) error {
	name := filepath.Join(controlDir, hostsName)
	if err := os.WriteFile(name, []byte(hosts), 0o644); err != nil {
		return err
	}
	return os.Chmod(name, 0o644) // whatever the umask is
}

// create does not stop in the middle when ctx ends: docker would go on, and
// nobody would know of the container.
func (e *Engine) create(ctx context.Context, spec engine.Spec, asked request) (*Container, error) {
	what := "create container for run " + spec.Run
	kept, cancel := e.bounded(ctx, what, createTimeout)
	defer cancel()
	made, err := e.client.ContainerCreate(kept, asked.config, asked.host, nil, nil, "mcpx-"+spec.Run)
	switch {
	case err == nil:
		return &Container{engine: e, id: made.ID, spec: spec, removed: make(chan struct{})}, nil
	case errdefs.IsNotFound(err):
		return nil, notHere(spec.Image, "")
	case kept.Err() != nil, noAnswer(err):
		return nil, errors.Join(e.fault(kept, what, err), e.removeUnseen(ctx, spec))
	}
	return nil, e.fault(kept, what, err)
}

// removeUnseen removes a container that may have been made although docker did
// not answer.
func (e *Engine) removeUnseen(ctx context.Context, spec engine.Spec) error {
	ctx, cancel := e.bounded(ctx, "removal for run "+spec.Run, removeTimeout)
	defer cancel()
	_, err := e.removeAll(ctx, filters.NewArgs(
		filters.Arg("label", engine.LabelOwner+"="+spec.Owner),
		filters.Arg("label", engine.LabelRun+"="+spec.Run)))
	if errdefs.IsUnavailable(err) {
		return nil // that is being told, and a daemon that is gone makes nothing
	}
	return err
}

// start goes from the created container to the one whose init waits.
func (c *Container) start(ctx context.Context) error {
	limit := c.engine.config.StartTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &run.Error{
		Code: run.CodeEngineUnavailable, Class: errdefs.ErrUnavailable,
		Message: fmt.Sprintf("the container for run %s was not ready within %s", c.spec.Run, limit),
		Hint:    "the machine may be overloaded; `mcpx doctor` tries a container",
	})
	defer cancel()
	if err := c.engine.client.ContainerStart(ctx, c.id, container.StartOptions{}); err != nil {
		return c.engine.fault(ctx, "start container for run "+c.spec.Run, err)
	}
	return c.connect(ctx)
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
	timer := time.NewTimer(watchAfter)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-timer.C:
	}
	state, err := c.stopped(ctx)
	switch {
	case ctx.Err() != nil:
		return nil
	case errdefs.IsNotFound(err):
		return c.gone()
	case err != nil:
		return err
	}
	return c.notRunnable(state)
}

// notRunnable is that init ended before it connected. What it said went
// nowhere, for containers have no log, so the hint is how to hear it.
func (c *Container) notRunnable(state *container.State) error {
	from, try := c.engine.config.InitPath, c.engine.config.InitPath+" version"
	if c.spec.ImageInit == engine.InitProtocol {
		from = engine.InitPath + " of image " + c.spec.Image
		try = "docker run --rm --entrypoint " + engine.InitPath + " " + c.spec.Image + " version"
	}
	return &run.Error{
		Code: run.CodeInternal, Class: errdefs.ErrFailedPrecondition,
		Message: fmt.Sprintf("%s ended at once with %s", from, ending(state)),
		Hint:    "it has to be a static binary for this machine: `" + try + "` shows whether it runs",
	}
}

// discard removes what a failed Prepare has made.
func (c *Container) discard(ctx context.Context) error {
	ctx, cancel := c.engine.bounded(ctx, "removal for run "+c.spec.Run, removeTimeout)
	defer cancel()
	return c.Remove(ctx)
}
