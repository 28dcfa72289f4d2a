package job_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mcpx/orchestrator/job"
	"mcpx/orchestrator/job/sqlite"
	"mcpx/orchestrator/run"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("MCPX_TEST_VICTIM"); dir != "" {
		beVictim(dir)
	}
	// gorm's statement cache starts a goroutine for each database and never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

// runner does what the request's source says, without any container.
type runner struct {
	gate   chan struct{} // what waits goes on when it is closed
	chatty int           // stdout events of "chat"
	meet   int64         // "meet" goes on when so many run at once
	met    chan struct{}

	mu    sync.Mutex
	begun []string // labels
	now   atomic.Int64
	most  atomic.Int64
	late  error // what emit said after the end
}

type plan struct{ req run.Request }

func (p plan) Facts() run.Summary {
	o := p.req.Options
	return run.Summary{Runtime: "bash", Image: "i", Policy: "p", Label: o.Label, Session: o.Session, TaskHandle: o.TaskHandle}
}

func (r *runner) Plan(_ context.Context, req run.Request, _ run.Caller) (job.Plan, error) {
	switch req.Source {
	case "bad":
		return nil, &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Message: "bad"}
	case "denied":
		return nil, &run.Error{Code: run.CodeDenied, Class: errdefs.ErrPermissionDenied, Message: "not granted"}
	case "plan slowly":
		<-r.gate
	}
	return plan{req}, nil
}

func (r *runner) Run(ctx context.Context, id string, p job.Plan, emit func(string, any) error) {
	r.enter(p.(plan).req.Options.Label)
	defer r.now.Add(-1)
	code, started := 0, 1.0
	end := &run.End{RunID: id, State: run.Exited, ExitCode: &code, DurationMs: 5, Timings: run.Timings{Started: &started}}
	fail := func(state run.State, why error) {
		end.State, end.ExitCode = state, nil
		emit(run.EventError, &run.Error{Code: string(state), Message: why.Error()})
	}
	if err := emit(run.EventStart, &run.StartFrame{RunID: id, Runtime: "bash"}); err != nil {
		fail(run.Failed, err)
	}
	switch p.(plan).req.Source {
	case "wait":
		select {
		case <-r.gate:
		case <-ctx.Done():
			fail(run.Cancelled, context.Cause(ctx))
		}
	case "stubborn":
		<-r.gate
	case "meet":
		<-r.met
	case "chat":
		for i := range r.chatty {
			if err := emit(run.EventStdout, &run.OutputFrame{Text: fmt.Sprintf("%d\n", i)}); err != nil {
				fail(run.Failed, err)
				break
			}
		}
	case "large":
		emit(run.EventStdout, &run.OutputFrame{Text: large})
	case "panic":
		panic("boom")
	case "silent":
		return
	case "no ending":
		emit(run.EventEnd, &run.End{RunID: id, State: run.Running})
		emit(run.EventEnd, *end)
		return
	case "late":
		emit(run.EventEnd, end)
		r.late = errors.Join(emit(run.EventStdout, &run.OutputFrame{Text: "late"}), emit(run.EventEnd, end))
		<-r.gate
		return
	}
	emit(run.EventEnd, end)
}

// large is an event's text that is longer than any buffer.
var large = strings.Repeat("0123456789abcdef", 5<<16) // 5 MiB

func (r *runner) enter(label string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = append(r.begun, label)
	r.most.Store(max(r.most.Load(), r.now.Add(1)))
	if r.now.Load() == r.meet {
		select {
		case <-r.met:
		default:
			close(r.met)
		}
	}
}

func manager(t *testing.T, r *runner, slots, queue int) *job.Manager {
	return managerIn(t, t.TempDir(), r, slots, queue)
}

// managerIn works on a state directory, which several may share.
func managerIn(t *testing.T, dir string, r *runner, slots, queue int) *job.Manager {
	t.Helper()
	store, err := sqlite.Open(filepath.Join(dir, "mcpx.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	m := managerOf(t, store, dir, r, slots, queue)
	t.Cleanup(func() { require.NoError(t, m.Close(context.WithoutCancel(t.Context()))) })
	return m
}

// managerOf is one that the test closes.
func managerOf(t *testing.T, store job.Store, dir string, r *runner, slots, queue int) *job.Manager {
	t.Helper()
	if r.gate == nil {
		r.gate, r.met = make(chan struct{}), make(chan struct{})
	}
	m, err := job.New(job.Config{Runner: r, Store: store, LogDir: filepath.Join(dir, "logs"), Owner: "me",
		Slots: slots, Queue: queue, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return m
}

func request(source, label string) run.Request {
	return run.Request{Source: source, Options: run.Options{Label: label}}
}

func submit(t *testing.T, m *job.Manager, source, label string) string {
	t.Helper()
	id, err := m.Submit(t.Context(), request(source, label), run.Caller{Principal: "local"})
	require.NoError(t, err)
	return id
}

// finish submits and waits for the result.
func finish(t *testing.T, m *job.Manager, source string) (string, run.Result) {
	t.Helper()
	id := submit(t, m, source, "")
	result, err := m.Wait(t.Context(), id)
	require.NoError(t, err)
	return id, result
}

// kinds reads a run to its end and checks that seq has no gap.
func kinds(t *testing.T, m *job.Manager, id string) string {
	t.Helper()
	var all []string
	for e, err := range m.Watch(t.Context(), id, 0) {
		require.NoError(t, err)
		require.Equal(t, int64(len(all)+1), e.Seq)
		all = append(all, e.Type)
	}
	return strings.Join(all, " ")
}

func stateOf(t *testing.T, m *job.Manager, id string) run.State {
	t.Helper()
	s, err := m.Get(t.Context(), id)
	require.NoError(t, err)
	return s.State
}

func list(t *testing.T, m *job.Manager, f job.Filter) []run.Summary {
	t.Helper()
	page, _, err := m.List(t.Context(), f)
	require.NoError(t, err)
	return page
}

func logFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "logs", "*", "*"))
	require.NoError(t, err)
	return files
}
