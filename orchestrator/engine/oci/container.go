package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
)

// settleTime is how long a container may take to end by itself once init's
// connection is gone.
const settleTime = time.Second

// Container is one container, whose init waits or has run its job.
type Container struct {
	engine  *Engine
	id      string
	spec    engine.Spec
	dir     string
	group   group
	release func() // of the root
	link    *link.Link

	// started is closed when the runtime has ended; nil when it was not begun.
	// Then either startErr or init is there.
	runtime  *os.Process
	started  chan struct{}
	startErr error
	init     *process

	removing sync.Once
	removed  chan struct{} // closed when Remove has been called
	clearing sync.Mutex
	cleared  bool
}

var _ engine.Container = (*Container)(nil)

// ID is the runtime's name for it, and that of its cgroup.
func (c *Container) ID() string { return c.id }

// Run speaks with init; whether memory ran out the cgroup tells.
func (c *Container) Run(ctx context.Context, job engine.Job, stdio engine.IO) (engine.Exit, error) {
	if err := link.PlaceFiles(c.spec.ControlDir, job.Files); err != nil {
		return engine.Exit{Code: -1}, fmt.Errorf("run %s: %w", c.spec.Run, err)
	}
	exit, err := c.link.Run(ctx, job, stdio)
	if errors.Is(err, link.ErrLost) {
		return c.lost(ctx, err)
	}
	if c.link.Failure() == nil && err != nil { // it was not begun
		return exit, err
	}
	kills, failed := c.group.oomKills()
	if c.isRemoved() {
		failed = nil // init had reported before
	}
	exit.OOMKilled = kills > 0
	return exit, errors.Join(err, failed)
}

// Collect has init read the outbox, which is the container's memory.
func (c *Container) Collect(ctx context.Context, sink engine.Outbox) error {
	if err := c.link.Collect(ctx, sink); err != nil {
		return fmt.Errorf("run %s: %w", c.spec.Run, err)
	}
	return nil
}

// lost finds out how a script ended whose init did not report. why says what
// became of the connection. A stdio error is told beside the exit, as always.
func (c *Container) lost(ctx context.Context, why error) (engine.Exit, error) {
	asked := ctx.Err() != nil
	alive, err := c.end(context.WithoutCancel(ctx))
	if c.isRemoved() {
		return engine.Exit{Code: -1}, c.gone()
	}
	if err != nil {
		return engine.Exit{Code: -1}, err
	}
	kills, err := c.group.oomKills()
	if err != nil {
		return engine.Exit{Code: -1}, errors.Join(c.gone(), err)
	}
	status, known := c.init.status()
	killed := known && !alive && status.Signaled() && status.Signal() == 9
	switch {
	case kills > 0:
		return engine.Exit{Code: -1, Signal: "SIGKILL", OOMKilled: true}, c.link.Failure()
	case asked, killed:
		return engine.Exit{Code: -1, Signal: "SIGKILL"}, c.link.Failure()
	}
	return engine.Exit{Code: -1}, fmt.Errorf("init of run %s ended (%s): %w", c.spec.Run, c.init.ending(), why)
}

// end sees to it that the container does not run. alive tells that it still
// did, although its init had hung up.
func (c *Container) end(ctx context.Context) (alive bool, err error) {
	<-c.started
	if c.startErr != nil {
		return false, c.startErr
	}
	brief, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if c.init.wait(brief) == nil {
		return false, nil
	}
	if err := c.init.kill(); err != nil {
		return true, fmt.Errorf("kill the container of run %s: %w", c.spec.Run, err)
	}
	last, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	return true, c.init.wait(last)
}

func (c *Container) isRemoved() bool {
	select {
	case <-c.removed:
		return true
	default:
		return false
	}
}
