package job

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// FullError says that there is no room, and when to ask again.
type FullError struct {
	Reason     *run.Error
	RetryAfter time.Duration
}

func (e *FullError) Error() string { return e.Reason.Error() }

// Unwrap yields the error with its code and class.
func (e *FullError) Unwrap() error { return e.Reason }

// Submit admits a request and returns the run's id; the run is recorded by
// then. A request that is wrong or denied is the error that the runner's Plan
// gave; a denial is recorded too. Without room the error is a *FullError.
//
// The run does not end with ctx.
func (m *Manager) Submit(ctx context.Context, req run.Request, by run.Caller) (string, error) {
	if err := m.Accepting(); err != nil {
		return "", err
	}
	plan, err := m.config.Runner.Plan(ctx, req, by)
	if errdefs.IsPermissionDenied(err) {
		return "", m.recordDenial(ctx, req, by, err)
	}
	if err != nil {
		return "", err
	}
	l, err := m.admit(ctx, plan, by)
	if err != nil {
		return "", err
	}
	if err := m.enqueue(l); err != nil {
		return "", m.unrecord(ctx, l, err)
	}
	return l.id, nil
}

// admit records a run that waits.
func (m *Manager) admit(ctx context.Context, plan Plan, by run.Caller) (*live, error) {
	if err := m.room(); err != nil {
		return nil, err
	}
	row := Row{Summary: plan.Facts(), Owner: m.config.Owner}
	row.RunID, row.State, row.CreatedAt, row.Principal = newID(), run.Queued, time.Now().UTC(), by.Principal
	log, err := createLog(m.config.LogDir, row.RunID)
	if err != nil {
		return nil, err
	}
	l := &live{id: row.RunID, plan: plan, log: log, row: row}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := m.config.Store.Insert(ctx, row); err != nil {
		return nil, m.unrecord(ctx, l, fmt.Errorf("row of run %s: %w", l.id, err))
	}
	return l, nil
}

// unrecord takes back a run that could not be admitted.
func (m *Manager) unrecord(ctx context.Context, l *live, why error) error {
	l.cancel(why)
	if err := l.log.remove(); err != nil {
		m.config.Log.Warn("event log is left", "run", l.id, "error", err)
	}
	if err := m.config.Store.Delete(context.WithoutCancel(ctx), l.id); err != nil && !errdefs.IsNotFound(err) {
		m.config.Log.Warn("row is left", "run", l.id, "error", err)
	}
	return why
}

func (m *Manager) room() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.roomLocked()
}

func (m *Manager) roomLocked() error {
	if m.closing {
		return shuttingDown()
	}
	if m.running < m.config.Slots || len(m.queue) < m.config.Queue {
		return nil
	}
	return &FullError{RetryAfter: time.Second, Reason: &run.Error{
		Code: run.CodeQueueFull, Class: errdefs.ErrResourceExhausted,
		Message: fmt.Sprintf("%d runs are under way and %d wait; there is no room for more", m.running, len(m.queue)),
		Hint:    "ask again later",
	}}
}

// enqueue gives a run its slot, or its place in the queue.
func (m *Manager) enqueue(l *live) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.roomLocked(); err != nil {
		return err
	}
	m.live[l.id] = l
	if m.running < m.config.Slots {
		m.begin(l)
		return nil
	}
	m.queue = append(m.queue, l)
	l.announce(len(m.queue))
	return nil
}

// begin takes a slot for l. m.mu is held.
func (m *Manager) begin(l *live) {
	m.running++
	m.work.Go(func() {
		m.carryOut(l)
		m.release(l)
	})
}

// release gives the slot to the next in the queue.
func (m *Manager) release(l *live) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, l.id)
	m.running--
	if len(m.queue) == 0 {
		return
	}
	next := m.queue[0]
	m.queue = m.queue[1:]
	m.begin(next)
	m.announceAll()
}

// announceAll tells the waiting their new places. m.mu is held.
func (m *Manager) announceAll() {
	for i, l := range m.queue {
		l.announce(i + 1)
	}
}

// dropQueued ends a run that never got a slot; one that runs is let alone.
func (m *Manager) dropQueued(l *live) {
	m.mu.Lock()
	i := slices.Index(m.queue, l)
	if i < 0 {
		m.mu.Unlock()
		return
	}
	m.queue = slices.Delete(m.queue, i, i+1)
	m.work.Add(1)
	m.announceAll()
	m.mu.Unlock()
	defer m.work.Done()

	m.conclude(l, run.Cancelled, causeError(context.Cause(l.ctx)))
	m.mu.Lock()
	delete(m.live, l.id)
	m.mu.Unlock()
}

func causeError(cause error) *run.Error {
	code := run.CodeCancelled
	if cause == run.ErrShutdown { //nolint:errorlint // causes are these very values
		code = run.CodeShuttingDown
	}
	return &run.Error{Code: code, Message: "ended while it waited: " + cause.Error()}
}

// near is up to which place each step is told; further back only when the way
// has become half as long, so that a long queue costs few events.
const near = 8

// announce tells l its place, if that is news.
func (l *live) announce(position int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := l.announced == 0 || position <= near || position <= l.announced/2
	if l.begun || !news || position == l.announced {
		return
	}
	if l.log.append(run.EventQueued, &run.QueuedFrame{Position: position}) == nil {
		l.announced = position
	}
}

// carryOut runs l to its end, whatever the runner does.
func (m *Manager) carryOut(l *live) {
	l.mu.Lock()
	l.begun = true
	l.mu.Unlock()
	m.advance(l, run.Starting)
	m.runGuarded(l)
	l.mu.Lock()
	ended := l.end != nil
	l.mu.Unlock()
	if !ended {
		m.conclude(l, run.Failed, &run.Error{Code: run.CodeInternal, Class: errdefs.ErrInternal,
			Message: "the run was not told to its end; the daemon's log says why"})
	}
	l.cancel(nil)
}

func (m *Manager) runGuarded(l *live) {
	defer func() {
		if r := recover(); r != nil {
			m.config.Log.Error("a run panicked", "run", l.id, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	m.config.Runner.Run(l.ctx, l.id, l.plan, func(kind string, payload any) error { return m.emit(l, kind, payload) })
}

// emit appends an event. The start makes the run a running one; the end is
// told only when it is on disk and in the row, so that nobody sees it undone.
func (m *Manager) emit(l *live, kind string, payload any) error {
	switch p := payload.(type) {
	case *run.StartFrame:
		m.advance(l, run.Running)
	case *run.Error:
		l.mu.Lock()
		l.row.Error = p
		l.mu.Unlock()
	case *run.End:
		return m.finish(l, p)
	}
	return l.log.append(kind, payload)
}

func (m *Manager) advance(l *live, state run.State) {
	l.mu.Lock()
	l.row.State = state
	if state == run.Running {
		now := time.Now().UTC()
		l.row.StartedAt = &now
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

// finish writes the end to the log, the row, and then to the readers.
func (m *Manager) finish(l *live, end *run.End) error {
	l.mu.Lock()
	if l.end != nil {
		l.mu.Unlock()
		return fmt.Errorf("run %s has ended: %w", l.id, errdefs.ErrFailedPrecondition)
	}
	l.end = end
	now := time.Now().UTC()
	l.row.State, l.row.ExitCode, l.row.Signal, l.row.EndedAt = end.State, end.ExitCode, end.Signal, &now
	l.row.DurationMs = end.DurationMs
	l.mu.Unlock()

	logErr := l.log.appendEnd(end)
	l.mu.Lock()
	if logErr != nil {
		l.row.State = run.Failed
		l.row.Error = &run.Error{Code: run.CodeInternal, Message: "the event log could not be written: " + logErr.Error()}
	}
	l.row.LogBytes = l.log.length()
	row := l.row
	l.mu.Unlock()
	if err := m.config.Store.Update(context.WithoutCancel(l.ctx), row); err != nil {
		m.config.Log.Error("row has no end", "run", l.id, "error", err)
	}
	l.log.publishEnd(logErr)
	return logErr
}

// recordDenial keeps a refused request in the listings.
func (m *Manager) recordDenial(ctx context.Context, req run.Request, by run.Caller, denial error) error {
	facts := run.Summary{Label: req.Options.Label, TaskHandle: req.Options.TaskHandle, Session: req.Options.Session}
	l, err := m.admit(ctx, denied{facts}, by)
	if err != nil {
		return denial // what the caller did wrong comes first
	}
	m.conclude(l, run.Denied, asError(denial))
	l.cancel(nil)
	return denial
}

// denied is the plan of a run that a policy refused.
type denied struct{ facts run.Summary }

func (d denied) Facts() run.Summary { return d.facts }

func asError(err error) *run.Error {
	var known *run.Error
	if errors.As(err, &known) {
		return known
	}
	return &run.Error{Code: run.CodeDenied, Message: err.Error(), Class: errdefs.ErrPermissionDenied}
}
