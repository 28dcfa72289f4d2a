package job

import (
	"context"
	"errors"
	"fmt"
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

// retryAfter is a guess: how long the runs under way will take is unknown.
const retryAfter = time.Second

// Submit admits a request and returns the run's id; the run is recorded by
// then. A request that is wrong or denied is the error that the runner's Plan
// gave; a denial is recorded too. Without room the error is a *FullError.
//
// The run does not end with ctx.
func (m *Manager) Submit(ctx context.Context, req run.Request, by run.Caller) (string, error) {
	if err := m.enter(); err != nil {
		return "", err
	}
	defer m.work.Done()
	plan, err := m.config.Runner.Plan(ctx, req, by)
	if errdefs.IsPermissionDenied(err) {
		m.recordDenial(ctx, req, by, err)
	}
	if err != nil {
		return "", err
	}
	return m.admit(ctx, plan, by)
}

// enter keeps Close waiting until the caller has left.
func (m *Manager) enter() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.acceptingLocked(); err != nil {
		return err
	}
	m.work.Add(1)
	return nil
}

// admit takes a place for the run, records it, and lets it go or wait.
func (m *Manager) admit(ctx context.Context, plan Plan, by run.Caller) (string, error) {
	facts := plan.Facts()
	if err := m.reserve(); err != nil {
		return "", err
	}
	l, err := m.record(ctx, facts, by)
	if err != nil {
		m.unreserve()
		return "", err
	}
	l.plan = plan
	place, err := m.enqueue(l)
	if err != nil {
		l.cancel(err)
		return "", errors.Join(err, m.forget(context.WithoutCancel(ctx), l.id))
	}
	if place > 0 {
		l.announce(place)
	}
	return l.id, nil
}

// reserve holds a place while the run is recorded, so that no run is recorded
// for which there is no room.
func (m *Manager) reserve() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running+m.queue.size()+m.coming < m.config.Slots+m.config.Queue {
		m.coming++
		return nil
	}
	return &FullError{RetryAfter: retryAfter, Reason: &run.Error{
		Code: run.CodeQueueFull, Class: errdefs.ErrResourceExhausted,
		Message: fmt.Sprintf("%d runs are under way and %d wait; there is no room for more", m.running, m.queue.size()+m.coming),
		Hint:    "ask again later",
	}}
}

func (m *Manager) unreserve() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.coming--
}

// record makes the row and then the log: a row without a log is found by
// Recover, a log without a row by nobody.
func (m *Manager) record(ctx context.Context, facts run.Summary, by run.Caller) (*live, error) {
	row := Row{Summary: facts, Owner: m.config.Owner}
	row.RunID, row.State, row.CreatedAt, row.Principal = m.newID(), run.Queued, now(), by.Principal
	if err := m.config.Store.Insert(ctx, row); err != nil {
		return nil, fmt.Errorf("row of run %s: %w", row.RunID, err)
	}
	log, err := createLog(m.config.LogDir, row.RunID)
	if err != nil {
		return nil, errors.Join(err, m.config.Store.Delete(context.WithoutCancel(ctx), row.RunID))
	}
	l := &live{id: row.RunID, log: log, row: row, done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return l, nil
}

// enqueue gives a run its slot, or its place in the queue, which it returns.
func (m *Manager) enqueue(l *live) (place int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.coming--
	if err := m.acceptingLocked(); err != nil {
		return 0, errors.Join(err, l.log.close())
	}
	m.live[l.id] = l
	if m.running < m.config.Slots {
		m.begin(l)
		return 0, nil
	}
	return m.queue.push(l), nil
}

// begin takes a slot for l. m.mu is held.
func (m *Manager) begin(l *live) {
	m.running++
	m.work.Go(func() {
		m.carryOut(l)
		m.release(l)
		l.publish()
	})
}

// release gives the slot to the next in the queue. Readers are shown the end
// after that: who has seen a run end finds its slot free.
func (m *Manager) release(l *live) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running--
	m.retire(l)
	if next := m.queue.pop(); next != nil {
		m.begin(next)
		m.queueMoved()
	}
}

// recordDenial keeps a refused request in the listings. What the caller did
// wrong is the answer also when that does not succeed.
func (m *Manager) recordDenial(ctx context.Context, req run.Request, by run.Caller, denial error) {
	facts := run.Summary{Label: req.Options.Label, TaskHandle: req.Options.TaskHandle, Session: req.Options.Session}
	l, err := m.record(ctx, facts, by)
	if err != nil {
		m.config.Log.Error("denial is not recorded", "principal", by.Principal, "error", err)
		return
	}
	defer l.cancel(nil)
	m.mu.Lock()
	m.live[l.id] = l
	m.mu.Unlock()
	m.concludeWithoutSlot(l, run.Denied, asError(denial))
}

func asError(err error) *run.Error {
	if known, ok := errors.AsType[*run.Error](err); ok {
		return known
	}
	return &run.Error{Code: run.CodeDenied, Message: err.Error(), Class: errdefs.ErrPermissionDenied}
}
