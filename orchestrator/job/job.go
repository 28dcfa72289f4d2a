// Package job is the one door for runs: it admits them, gives each a place
// when there is one, keeps what happens in an event log, and tells it to any
// number of readers. Runs survive the process as rows and log files.
package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// Runner decides what a request gets, and carries it out.
type Runner interface {
	// Plan makes nothing; a request that is wrong or not granted is an error.
	Plan(ctx context.Context, req run.Request, by run.Caller) (Plan, error)
	// Run emits every event from start to end and returns when nothing of the
	// run is left; the end is shown after that. ctx ends the run, its cause says
	// why. An error of emit means that the event is not recorded: the run should
	// be ended.
	Run(ctx context.Context, id string, p Plan, emit func(kind string, payload any) error)
}

// Plan is a decided request.
type Plan interface {
	// Facts are what a listing shows before the run has begun.
	Facts() run.Summary
}

// Config is what a Manager works with.
type Config struct {
	Runner Runner
	Store  Store
	LogDir string // event logs
	Owner  string // this life of the process
	Slots  int    // runs at a time; at least 1
	Queue  int    // runs that may wait for a slot
	Log    *slog.Logger
}

// Manager admits runs. It is safe for concurrent use.
type Manager struct {
	config Config
	work   sync.WaitGroup // goroutines, and calls of Submit under way
	stop   chan struct{}  // closed by Close
	moved  chan struct{}  // has an element when places in the queue have changed

	mu      sync.Mutex // before live.mu, where both are held
	live    map[string]*live
	queue   queue
	coming  int // runs that have a place and are being recorded
	running int // runs that have a slot
	closing bool
	lastID  int64 // milliseconds of the newest id
}

// New makes a Manager; Close ends it.
func New(c Config) (*Manager, error) {
	if err := os.MkdirAll(c.LogDir, 0o700); err != nil {
		return nil, fmt.Errorf("log directory: %w", err)
	}
	c.Slots = max(c.Slots, 1)
	m := &Manager{config: c, live: map[string]*live{}, stop: make(chan struct{}), moved: make(chan struct{}, 1)}
	m.work.Go(m.tellPlaces)
	m.work.Go(m.catchUp)
	return m, nil
}

// Stats are the manager's load.
type Stats struct {
	Running int `json:"running"`
	Queued  int `json:"queued"`
	Slots   int `json:"slots"`
	Queue   int `json:"queue"`
}

// Stats tells the load now.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Stats{Running: m.running, Queued: m.queue.size(), Slots: m.config.Slots, Queue: m.config.Queue}
}

// Accepting is nil while new runs are taken, else the error they would get.
func (m *Manager) Accepting() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.acceptingLocked()
}

func (m *Manager) acceptingLocked() error {
	if m.closing {
		return &run.Error{Code: run.CodeShuttingDown, Class: errdefs.ErrUnavailable, Message: "the daemon is going down"}
	}
	return nil
}

// Get yields the run as a listing shows it; errdefs.ErrNotFound when there is none.
func (m *Manager) Get(ctx context.Context, id string) (run.Summary, error) {
	row, err := m.row(ctx, id)
	return row.Summary, err
}

// row prefers what this process knows: the store is behind while it can't be
// written.
func (m *Manager) row(ctx context.Context, id string) (Row, error) {
	if l := m.lookup(id); l != nil {
		return l.snapshot(), nil
	}
	return m.config.Store.Get(ctx, id)
}

func (m *Manager) lookup(id string) *live {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live[id]
}

// List yields a page of runs, the newest first, and where the next one begins.
func (m *Manager) List(ctx context.Context, f Filter) ([]run.Summary, string, error) {
	rows, next, err := m.config.Store.List(ctx, f)
	page := make([]run.Summary, len(rows))
	for i, row := range rows {
		page[i] = row.Summary
	}
	return page, next, err
}

// Close takes no more runs, ends those under way with run.ErrShutdown, and
// waits until nothing of them is left, or ctx ends. An error means that a
// Recover is due for this owner.
func (m *Manager) Close(ctx context.Context) error {
	waiting := m.shut()
	for _, l := range m.allLive() {
		l.ask(run.ErrShutdown)
	}
	for _, l := range waiting {
		go m.drop(l) // counted by shut
	}
	done := make(chan struct{})
	go func() {
		m.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return m.settleAll(ctx)
	case <-ctx.Done():
		return fmt.Errorf("runs are still ending: %w", context.Cause(ctx))
	}
}

// shut closes the door and takes everybody out of the queue.
func (m *Manager) shut() []*live {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closing {
		m.closing = true
		close(m.stop)
	}
	waiting := m.queue.clear()
	m.work.Add(len(waiting))
	return waiting
}

// catchUpInterval bounds how much of a log a power cut can take.
const catchUpInterval = time.Second

// catchUp does what the runs themselves do not wait for: it puts the logs of
// running runs on disk, and writes the rows that the store could not take.
func (m *Manager) catchUp() {
	tick := time.NewTicker(catchUpInterval)
	defer tick.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-tick.C:
		}
		for _, l := range m.allLive() {
			if err := l.log.sync(); err != nil {
				m.config.Log.Error("event log is not on disk", "run", l.id, "error", err)
			}
			m.settleOverdue(context.WithoutCancel(l.ctx), l) //nolint:errcheck // it is tried again
		}
	}
}

// settleAll writes the rows that are still due.
func (m *Manager) settleAll(ctx context.Context) error {
	var failed []error
	for _, l := range m.allLive() {
		failed = append(failed, m.settleOverdue(ctx, l))
	}
	return errors.Join(failed...)
}

func (m *Manager) allLive() []*live {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*live, 0, len(m.live))
	for _, l := range m.live {
		all = append(all, l)
	}
	return all
}
