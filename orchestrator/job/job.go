// Package job is the one door for runs: it admits them, gives each a place
// when there is one, keeps what happens in an event log, and tells it to any
// number of readers. Runs survive the process as rows and log files.
package job

import (
	"context"
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
	// run is left. ctx ends it, its cause says why.
	Run(ctx context.Context, id string, p Plan, emit func(kind string, payload any) error)
}

// Plan is a decided request.
type Plan interface {
	// Facts are what a listing shows before the run has begun.
	Facts() run.Summary
}

// Row is what is kept of a run beside its log.
type Row struct {
	run.Summary
	Owner    string // the life of the process that has it
	LogBytes int64  // set at its end
}

// Store keeps rows. A row whose state is terminal never changes again.
type Store interface {
	Insert(context.Context, Row) error
	// Update writes state, moments and ending; errdefs.ErrFailedPrecondition
	// when the row is terminal already.
	Update(context.Context, Row) error
	Get(ctx context.Context, id string) (Row, error)
	List(context.Context, Filter) (rows []Row, next string, err error)
	// Unfinished yields the rows of an owner that are not terminal.
	Unfinished(ctx context.Context, owner string) ([]Row, error)
	// Oldest yields at most limit terminal rows, the oldest first.
	Oldest(ctx context.Context, limit int) ([]Row, error)
	// Total is how many terminal rows there are and how large their logs.
	Total(context.Context) (count, logBytes int64, err error)
	Delete(ctx context.Context, id string) error
}

// Filter selects rows; what is empty selects all.
type Filter struct {
	States     []run.State
	Session    string
	TaskHandle string
	Label      string
	Principal  string
	After      string // id: only older ones
	Limit      int    // 0: DefaultLimit
}

// Limits of a page.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

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

	mu      sync.Mutex
	live    map[string]*live // queued and running
	queue   []*live
	running int
	closing bool
	work    sync.WaitGroup
	stop    chan struct{}
}

// New makes a Manager; Close ends it.
func New(c Config) (*Manager, error) {
	if err := os.MkdirAll(c.LogDir, 0o700); err != nil {
		return nil, fmt.Errorf("log directory: %w", err)
	}
	c.Slots = max(c.Slots, 1)
	m := &Manager{config: c, live: map[string]*live{}, stop: make(chan struct{})}
	m.work.Go(m.syncLogs)
	return m, nil
}

// live is a run that has not ended.
type live struct {
	id     string
	plan   Plan
	log    *eventLog
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	row       Row
	begun     bool // has a slot; its place in the queue is history
	announced int  // position told last
	cancelled bool
	end       *run.End
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
	return Stats{Running: m.running, Queued: len(m.queue), Slots: m.config.Slots, Queue: m.config.Queue}
}

// Accepting is nil while new runs are taken, else the error they would get.
func (m *Manager) Accepting() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing {
		return shuttingDown()
	}
	return nil
}

func shuttingDown() error {
	return &run.Error{Code: run.CodeShuttingDown, Class: errdefs.ErrUnavailable, Message: "the daemon is going down"}
}

// Get yields the run's row.
func (m *Manager) Get(ctx context.Context, id string) (run.Summary, error) {
	row, err := m.config.Store.Get(ctx, id)
	return row.Summary, err
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

// Outcome says what became of a cancellation.
type Outcome string

// The outcomes of Cancel.
const (
	Accepted        Outcome = "accepted"         // the run is being ended
	Idempotent      Outcome = "idempotent"       // it was being ended already
	AlreadyFinished Outcome = "already_finished" // it has ended by itself
)

// Cancel ends a run; cause is run.ErrCancelled or run.ErrClientGone. Accepted
// tells that it was asked for; the end event tells that it is done.
func (m *Manager) Cancel(ctx context.Context, id string, cause error) (Outcome, error) {
	m.mu.Lock()
	l := m.live[id]
	m.mu.Unlock()
	if l == nil {
		return m.notLive(ctx, id)
	}
	l.mu.Lock()
	again := l.cancelled
	l.cancelled = true
	l.mu.Unlock()
	l.cancel(cause)
	if again {
		return Idempotent, nil
	}
	m.dropQueued(l)
	return Accepted, nil
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

// Close takes no more runs, ends those under way with run.ErrShutdown, and
// waits until nothing of them is left, or ctx ends.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	if !m.closing {
		m.closing = true
		close(m.stop)
	}
	m.mu.Unlock()
	for _, l := range m.allLive() {
		l.cancel(run.ErrShutdown)
		m.dropQueued(l)
	}
	done := make(chan struct{})
	go func() {
		m.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("runs are still ending: %w", context.Cause(ctx))
	}
}

// syncInterval bounds how much of a log a power cut can take.
const syncInterval = time.Second

// syncLogs puts the logs of running runs on disk, off their way.
func (m *Manager) syncLogs() {
	tick := time.NewTicker(syncInterval)
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
		}
	}
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
