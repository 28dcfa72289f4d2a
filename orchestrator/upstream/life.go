package upstream

import (
	"context"
	"sync"
)

// life is the manager's: what goes on without its caller ends with it.
type life struct {
	work sync.WaitGroup
	once sync.Once
	stop chan struct{}
}

func newLife() *life { return &life{stop: make(chan struct{})} }

func (l *life) end() { l.once.Do(func() { close(l.stop) }) }

// outlive is ctx without its end: work that others wait for, too, ends with the
// manager, not with the caller who happened to come first.
func (l *life) outlive(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	l.work.Go(func() {
		select {
		case <-l.stop:
			cancel(errClosed)
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(nil) }
}
