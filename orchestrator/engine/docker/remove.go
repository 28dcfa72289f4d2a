package docker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"golang.org/x/sync/errgroup"

	"mcpx/orchestrator/engine"
)

const (
	removeTries = 6
	removePause = 100 * time.Millisecond // doubled each time
	// removeWait is for a removal that somebody else has begun.
	removeWait = 10 * time.Second
	// sweepers is how many containers are removed at a time.
	sweepers = 4
)

// Remove ends the connection, so that init ends the script, and the container.
func (c *Container) Remove(ctx context.Context) error {
	c.removing.Do(func() { close(c.removed) })
	if c.link != nil {
		c.link.Close() //nolint:errcheck // the container goes with it
	}
	return c.remove(ctx)
}

// remove tries until the container is gone: an engine that restarts, or has a
// mount busy, can do a moment later what it could not now.
func (c *Container) remove(ctx context.Context) error {
	pause := removePause
	for try := 1; ; try++ {
		err := c.removeOnce(ctx)
		if err == nil || try == removeTries || ctx.Err() != nil || errdefs.IsInvalidArgument(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(pause):
		}
		pause *= 2
	}
}

func (c *Container) removeOnce(ctx context.Context) error {
	err := c.engine.client.ContainerRemove(ctx, c.id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	if errdefs.IsConflict(err) { // a removal is under way
		brief, cancel := context.WithTimeout(ctx, removeWait)
		defer cancel()
		err = c.wait(brief, container.WaitConditionRemoved)
	}
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	return c.engine.fault(ctx, "remove container "+c.id, err)
}

// Sweep removes by label, so that no record of what was made is needed.
func (e *Engine) Sweep(ctx context.Context, owner string) (int, error) {
	n, err := e.removeAll(ctx, filters.NewArgs(filters.Arg("label", engine.LabelOwner+"="+owner)))
	if err != nil {
		return n, fmt.Errorf("containers of owner %s: %w", owner, err)
	}
	return n, nil
}

// removeAll removes what a filter finds, whatever its state, and counts it. A
// container that can't be removed does not keep the others.
func (e *Engine) removeAll(ctx context.Context, which filters.Args) (int, error) {
	if err := e.negotiate(ctx); err != nil {
		return 0, err
	}
	found, err := e.client.ContainerList(ctx, container.ListOptions{All: true, Filters: which})
	if err != nil {
		return 0, e.fault(ctx, "list of containers", err)
	}
	var removed atomic.Int64
	failed := make([]error, len(found))
	var group errgroup.Group
	group.SetLimit(sweepers)
	for i, one := range found {
		group.Go(func() error {
			c := &Container{engine: e, id: one.ID, removed: make(chan struct{})}
			if failed[i] = c.Remove(ctx); failed[i] == nil {
				removed.Add(1)
			}
			return nil
		})
	}
	group.Wait() //nolint:errcheck // they are in failed
	return int(removed.Load()), errors.Join(failed...)
}
