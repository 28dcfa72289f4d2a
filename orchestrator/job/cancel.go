package job

import (
	"context"
	"errors"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// Outcome says what became of a cancellation.
type Outcome string

// The outcomes of Cancel.
const (
	Accepted        Outcome = "accepted"         // the run is being ended
	Idempotent      Outcome = "idempotent"       // it was being ended already
	AlreadyFinished Outcome = "already_finished" // it has ended by itself
)

// Cancel ends a run; cause is run.ErrCancelled or run.ErrClientGone. One that
// waits never starts and has ended when Cancel returns; for one under way,
// Accepted tells that it was asked for, and the end event that it is done.
func (m *Manager) Cancel(ctx context.Context, id string, cause error) (Outcome, error) {
	m.mu.Lock()
	l := m.live[id]
	if l == nil {
		m.mu.Unlock()
		return m.notLive(ctx, id)
	}
	outcome := l.ask(cause)
	waited := m.queue.remove(l)
	if waited {
		m.work.Add(1)
	}
	m.mu.Unlock()
	if waited {
		m.queueMoved()
		m.drop(l)
	}
	if outcome != AlreadyFinished {
		return outcome, nil
	}
	select {
	case <-l.done: // who is told so also sees it
		return outcome, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// ask ends the run's context. Who asks first gives the cause.
func (l *live) ask(cause error) Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended:
		return AlreadyFinished
	case l.asked:
		return Idempotent
	}
	l.asked = true
	l.cancel(cause)
	return Accepted
}

// drop ends a run that was taken out of the queue, and counted in m.work, and
// asked to end.
func (m *Manager) drop(l *live) {
	defer m.work.Done()
	cause := context.Cause(l.ctx)
	code := run.CodeCancelled
	if errors.Is(cause, run.ErrShutdown) {
		code = run.CodeShuttingDown
	}
	m.concludeWithoutSlot(l, run.Cancelled, &run.Error{Code: code, Message: "ended while it waited: " + cause.Error()})
}

func (m *Manager) notLive(ctx context.Context, id string) (Outcome, error) {
	row, err := m.config.Store.Get(ctx, id)
	if err != nil {
		return "", err
	}
	if row.State.Terminal() {
		return AlreadyFinished, nil
	}
	return "", &run.Error{Code: run.CodeConflict, Class: errdefs.ErrConflict, Message: "the run belongs to another process of mcpx"}
}
