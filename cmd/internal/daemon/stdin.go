package daemon

import (
	"context"
	"io"

	"mcpx/orchestrator/engine"
)

// fed is an engine whose scripts read one live stream. A request carries its
// standard input whole; a process that carries out a run for its own caller can
// hand the stream on instead, so that a script gets what is written while it
// runs, and one that does not read waits for nobody.
type fed struct {
	engine.Engine
	in io.Reader
}

func (f fed) Prepare(ctx context.Context, spec engine.Spec) (engine.Container, error) {
	c, err := f.Engine.Prepare(ctx, spec)
	if err != nil {
		return nil, err
	}
	return fedContainer{c, f.in}, nil
}

type fedContainer struct {
	engine.Container
	in io.Reader
}

func (c fedContainer) Run(ctx context.Context, job engine.Job, stdio engine.IO) (engine.Exit, error) {
	stdio.Stdin = c.in
	return c.Container.Run(ctx, job, stdio)
}
