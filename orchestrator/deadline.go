package orchestrator

import (
	"context"
	"sync"
	"time"

	"mcpx/orchestrator/run"
)

// deadline ends a run with ErrTimeout a given time after the script's start.
type deadline struct {
	after  time.Duration
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func newDeadline(after time.Duration, cancel context.CancelCauseFunc) *deadline {
	return &deadline{after: after, cancel: cancel}
}

func (d *deadline) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stopped && d.timer == nil {
		d.timer = time.AfterFunc(d.after, func() { d.cancel(run.ErrTimeout) })
	}
}

func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	if d.timer != nil {
		d.timer.Stop()
	}
}
