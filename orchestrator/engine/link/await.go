package link

import (
	"context"
	"sync"

	"mcpx/orchestrator/engine"
)

// Await waits for the init of a container that has been started, and greets
// it. exits is called meanwhile: it returns why the container ended, which then
// is Await's error, or nil when its context ended first.
func Await(ctx context.Context, control engine.Control, exits func(context.Context) error) (*Link, error) {
	ctx, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer end(nil)
	watch.Go(func() {
		if err := exits(ctx); err != nil {
			end(err)
		}
	})
	l, err := accept(ctx, control)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return l, err
}

func accept(ctx context.Context, control engine.Control) (*Link, error) {
	conn, err := control.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return New(ctx, conn, Config{})
}
