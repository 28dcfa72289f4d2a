package job

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// live is a run that waits, is under way, or has a row that is still due.
type live struct {
	id     string
	plan   Plan
	log    *eventLog
	ctx    context.Context //nolint:containedctx // the run's own life
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it has ended and everybody can see it

	mu        sync.Mutex
	row       Row
	begun     bool // has a slot; its place in the queue is history
	announced int  // place told last
	asked     bool // to end
	ended     bool // its end is being written, or has been
	overdue   bool // the store has not taken its last row
}

func (l *live) snapshot() Row {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.row
}

// carryOut runs l to its end, whatever the runner does.
func (m *Manager) carryOut(l *live) {
	defer l.cancel(nil)
	l.mu.Lock()
	l.begun = true
	l.mu.Unlock()
	m.advance(l, run.Starting)
	m.runGuarded(l)
	if !l.hasEnded() {
		m.conclude(l, run.Failed, &run.Error{Code: run.CodeInternal, Class: errdefs.ErrInternal,
			Message: "the run was not told to its end; the daemon's log says why"})
	}
}

func (l *live) hasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

func (m *Manager) runGuarded(l *live) {
	defer func() {
		if r := recover(); r != nil {
			m.config.Log.Error("a run panicked", "run", l.id, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	m.config.Runner.Run(l.ctx, l.id, l.plan, func(kind string, payload any) error { return m.emit(l, kind, payload) })
}

// emit appends an event. The start makes the run a running one. The end is on
// disk and in the row when emit returns, and shown to readers by publish, so
// that nobody sees it undone.
func (m *Manager) emit(l *live, kind string, payload any) error {
	switch kind {
	case run.EventStart:
		m.advance(l, run.Running)
	case run.EventError:
		if problem, ok := payload.(*run.Error); ok {
			l.noteProblem(problem)
		}
	case run.EventEnd:
		end, ok := payload.(*run.End)
		if !ok || !end.State.Terminal() {
			return fmt.Errorf("the end of run %s tells no ending: %w", l.id, errdefs.ErrInvalidArgument)
		}
		return m.finish(l, end)
	}
	return l.log.append(kind, payload)
}

func (l *live) noteProblem(problem *run.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.row.Error = problem
	}
}

// advance notes a state that is not the last. The run goes on when the store
// can't take it: the next row says the same and more.
func (m *Manager) advance(l *live, state run.State) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return
	}
	l.row.State = state
	if state == run.Running {
		at := now()
		l.row.StartedAt = &at
	}
	row := l.row
	l.mu.Unlock()
	if err := m.config.Store.Update(context.WithoutCancel(l.ctx), row); err != nil {
		m.config.Log.Error("row is behind", "run", l.id, "state", state, "error", err)
	}
}

// conclude ends a run that the runner did not end.
func (m *Manager) conclude(l *live, state run.State, problem *run.Error) {
	if err := m.emit(l, run.EventError, problem); err != nil {
		m.config.Log.Error("event log is cut short", "run", l.id, "error", err)
	}
	if err := m.finish(l, &run.End{RunID: l.id, State: state}); err != nil {
		m.config.Log.Error("event log has no end", "run", l.id, "error", err)
	}
}

// concludeWithoutSlot ends a run that has none.
func (m *Manager) concludeWithoutSlot(l *live, state run.State, problem *run.Error) {
	m.conclude(l, state, problem)
	m.mu.Lock()
	m.retire(l)
	m.mu.Unlock()
	l.publish()
}

// finish writes the end to the log and to the row. The run is over also when
// neither can be written; then the row that is kept here tells its end, until
// the store takes it.
func (m *Manager) finish(l *live, end *run.End) error {
	if !l.claimEnd() {
		return fmt.Errorf("run %s has ended: %w", l.id, errdefs.ErrFailedPrecondition)
	}
	logErr := l.log.appendEnd(end)
	l.close(end, logErr)
	if err := m.settle(context.WithoutCancel(l.ctx), l); err != nil {
		m.config.Log.Error("row has no end yet", "run", l.id, "error", err)
	}
	return logErr
}

// publish shows the end to readers.
func (l *live) publish() {
	l.log.publishEnd()
	close(l.done)
}

func (l *live) claimEnd() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.ended
	l.ended = true
	return first
}

// close makes the last row.
func (l *live) close(end *run.End, logErr error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.row.conclude(end, now())
	l.row.LogBytes = l.log.length()
	if logErr != nil {
		l.row.State = run.Failed
		l.row.Error = &run.Error{Code: run.CodeInternal, Class: errdefs.ErrInternal,
			Message: "the event log could not be written: " + logErr.Error()}
	}
}

// settle writes the last row. Unless the store has one already, what it can't
// take now stays due.
func (m *Manager) settle(ctx context.Context, l *live) error {
	err := m.config.Store.Update(ctx, l.snapshot())
	if err != nil {
		err = fmt.Errorf("last row of run %s: %w", l.id, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.overdue = err != nil && !errdefs.IsFailedPrecondition(err)
	return err
}

// settleOverdue tries again to write a last row that is due.
func (m *Manager) settleOverdue(ctx context.Context, l *live) error {
	l.mu.Lock()
	due := l.overdue
	l.mu.Unlock()
	if !due {
		return nil
	}
	err := m.settle(ctx, l)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.retire(l)
	return err
}

// retire forgets a run that has ended, unless its row is still due. m.mu is held.
func (m *Manager) retire(l *live) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.overdue {
		delete(m.live, l.id)
	}
}
