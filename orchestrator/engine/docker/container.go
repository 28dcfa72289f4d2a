package docker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
)

// Container is one container of Docker's, whose init waits or has run its job.
type Container struct {
	engine *Engine
	id     string
	spec   engine.Spec
	link   *link.Link

	removing sync.Once
	removed  chan struct{} // closed when Remove has been called
}

var _ engine.Container = (*Container)(nil)

// ID is Docker's own.
func (c *Container) ID() string { return c.id }

// Run speaks with init only: Docker tells of an exit 80 ms late.
func (c *Container) Run(ctx context.Context, job engine.Job, stdio engine.IO) (engine.Exit, error) {
	if err := link.PlaceFiles(c.spec.ControlDir, job.Files); err != nil {
		return engine.Exit{Code: -1}, fmt.Errorf("run %s: %w", c.spec.Run, err)
	}
	exit, err := c.link.Run(ctx, job, stdio)
	if errors.Is(err, link.ErrLost) {
		return c.lost(ctx, err)
	}
	if _, known := c.link.OOMKills(); !known && exit.StartError == "" && err == nil {
		exit.OOMKilled, err = c.sawOOM(ctx)
	}
	return exit, err
}

// Collect has init read the outbox, which is the container's memory.
func (c *Container) Collect(ctx context.Context, sink engine.Outbox) error {
	if err := c.link.Collect(ctx, sink); err != nil {
		return fmt.Errorf("run %s: %w", c.spec.Run, err)
	}
	return nil
}
