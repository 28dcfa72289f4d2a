package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	mu     sync.Mutex
	gate   chan struct{} // "wait" runs end when it is closed
	begun  []string
	now    atomic.Int64
	most   atomic.Int64
	chatty int // stdout events of a "chat" run
}

type plan struct{ req run.Request }

func (p plan) Facts() run.Summary {
	return run.Summary{Runtime: "bash", Image: "i", Policy: "p", Label: p.req.Options.Label, Session: p.req.Options.Session}
}

func (r *runner) Plan(_ context.Context, req run.Request, _ run.Caller) (job.Plan, error) {
	switch req.Source {
	case "bad":
		return nil, &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Message: "bad"}
	case "denied":
		return nil, &run.Error{Code: run.CodeDenied, Class: errdefs.ErrPermissionDenied, Message: "not granted"}
	}
	return plan{req}, nil
}

func (r *runner) Run(ctx context.Context, id string, p job.Plan, emit func(string, any) error) {
	now := r.now.Add(1)
	defer r.now.Add(-1)
	for most := r.most.Load(); now > most && !r.most.CompareAndSwap(most, now); most = r.most.Load() {
	}
	r.mu.Lock()
	r.begun = append(r.begun, p.(plan).req.Options.Label)
	r.mu.Unlock()
	code := 0
	end := &run.End{RunID: id, State: run.Exited, ExitCode: &code, DurationMs: 5}
	emit(run.EventStart, &run.StartFrame{RunID: id, Runtime: "bash"})
	switch p.(plan).req.Source {
	case "wait":
		select {
		case <-r.gate:
		case <-ctx.Done():
			end.State, end.ExitCode = run.Cancelled, nil
			emit(run.EventError, &run.Error{Code: run.CodeCancelled, Message: context.Cause(ctx).Error()})
		}
	case "chat":
		for i := range r.chatty {
			if emit(run.EventStdout, &run.OutputFrame{Text: fmt.Sprintf("%d\n", i)}) != nil {
				end.State, end.ExitCode = run.Failed, nil
				break
			}
		}
	case "panic":
		panic("boom")
	case "silent":
		return
	}
	emit(run.EventEnd, end)
}

func manager(t *testing.T, r *runner, slots, queue int) *job.Manager {
	return managerIn(t, t.TempDir(), r, slots, queue)
}

func managerIn(t *testing.T, dir string, r *runner, slots, queue int) *job.Manager {
	t.Helper()
	if r.gate == nil {
		r.gate = make(chan struct{})
	}
	store, err := sqlite.Open(filepath.Join(dir, "mcpx.db"))
	require.NoError(t, err)
	m, err := job.New(job.Config{Runner: r, Store: store, LogDir: filepath.Join(dir, "logs"), Owner: "me",
		Slots: slots, Queue: queue, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, m.Close(context.WithoutCancel(t.Context())))
		require.NoError(t, store.Close())
	})
	return m
}

func submit(t *testing.T, m *job.Manager, source, label string) string {
	t.Helper()
	id, err := m.Submit(t.Context(), run.Request{Source: source, Options: run.Options{Label: label}}, run.Caller{Principal: "local"})
	require.NoError(t, err)
	return id
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

func TestRunIsRecordedAndTold(t *testing.T) {
	m := manager(t, &runner{}, 1, 0)
	id := submit(t, m, "ok", "l")
	r, err := m.Wait(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, run.Exited, r.State)
	require.Equal(t, 0, *r.ExitCode)

	s, err := m.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, run.Exited, s.State, "whoever saw the end sees it in the row")
	require.Equal(t, "l", s.Label)
	require.Equal(t, "local", s.Principal)
	require.NotNil(t, s.StartedAt)
	require.NotNil(t, s.EndedAt)
	require.Equal(t, "start end", kinds(t, m, id))
	again, err := m.Result(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, r, again)
}

func TestNeverMoreThanTheSlots(t *testing.T) {
	r := &runner{}
	m := manager(t, r, 20, 1000)
	var wg sync.WaitGroup
	for range 500 {
		wg.Go(func() {
			id, err := m.Submit(t.Context(), run.Request{Source: "ok"}, run.Caller{})
			if err != nil {
				t.Error(err)
				return
			}
			if result, err := m.Wait(t.Context(), id); err != nil || result.State != run.Exited {
				t.Errorf("%s: %v %v", id, result.State, err)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, r.most.Load(), int64(20))
	page, _, err := m.List(t.Context(), job.Filter{Limit: 1000})
	require.NoError(t, err)
	require.Len(t, page, 500)
}

func TestQueueIsFirstInFirstOutAndTellsPlaces(t *testing.T) {
	r := &runner{}
	m := manager(t, r, 1, 10)
	first := submit(t, m, "wait", "0")
	var ids []string
	for i := range 3 {
		ids = append(ids, submit(t, m, "ok", fmt.Sprint(i+1)))
	}
	require.Equal(t, job.Stats{Running: 1, Queued: 3, Slots: 1, Queue: 10}, m.Stats())
	close(r.gate)
	require.Equal(t, "start end", kinds(t, m, first), "who did not wait is not told of a queue")
	require.Equal(t, "queued start end", kinds(t, m, ids[0]))
	require.Equal(t, "queued queued queued start end", kinds(t, m, ids[2]))
	require.Equal(t, []string{"0", "1", "2", "3"}, r.begun)
}

func TestFullQueueSaysWhenToAskAgain(t *testing.T) {
	m := manager(t, &runner{}, 1, 1)
	submit(t, m, "wait", "")
	submit(t, m, "wait", "")
	_, err := m.Submit(t.Context(), run.Request{Source: "ok"}, run.Caller{})
	var full *job.FullError
	require.ErrorAs(t, err, &full)
	require.Positive(t, full.RetryAfter)
	require.True(t, errdefs.IsResourceExhausted(err))
	var known *run.Error
	require.ErrorAs(t, err, &known)
	require.Equal(t, run.CodeQueueFull, known.Code)
	page, _, err := m.List(t.Context(), job.Filter{})
	require.NoError(t, err)
	require.Len(t, page, 2, "what was not admitted leaves nothing")
}

func TestBadRequestLeavesNothingAndDenialLeavesARow(t *testing.T) {
	m := manager(t, &runner{}, 1, 1)
	_, err := m.Submit(t.Context(), run.Request{Source: "bad"}, run.Caller{})
	require.True(t, errdefs.IsInvalidArgument(err))
	page, _, err := m.List(t.Context(), job.Filter{})
	require.NoError(t, err)
	require.Empty(t, page)

	_, err = m.Submit(t.Context(), run.Request{Source: "denied"}, run.Caller{Principal: "p"})
	require.True(t, errdefs.IsPermissionDenied(err))
	page, _, err = m.List(t.Context(), job.Filter{States: []run.State{run.Denied}, Principal: "p"})
	require.NoError(t, err)
	require.Len(t, page, 1)
	require.Equal(t, run.CodeDenied, page[0].Error.Code)
	require.Equal(t, "error end", kinds(t, m, page[0].RunID))
}

func TestCancelIsIdempotentEverywhere(t *testing.T) {
	r := &runner{}
	m := manager(t, r, 1, 5)
	running, queued := submit(t, m, "wait", ""), submit(t, m, "ok", "never")
	cancel := func(id string) job.Outcome {
		o, err := m.Cancel(t.Context(), id, run.ErrCancelled)
		require.NoError(t, err)
		return o
	}
	require.Equal(t, job.Accepted, cancel(queued))
	require.Equal(t, "queued error end", kinds(t, m, queued))
	require.Equal(t, job.AlreadyFinished, cancel(queued))
	require.Equal(t, job.Accepted, cancel(running))
	result, err := m.Wait(t.Context(), running)
	require.NoError(t, err)
	require.Equal(t, run.Cancelled, result.State)
	require.NotContains(t, r.begun, "never")
	_, err = m.Cancel(t.Context(), "run-00000000000000000000000000", run.ErrCancelled)
	require.True(t, errdefs.IsNotFound(err))
}

func TestReadersFromAnywhereSeeEverySeqOnce(t *testing.T) {
	r := &runner{chatty: 300}
	m := manager(t, r, 1, 0)
	id := submit(t, m, "chat", "")
	var wg sync.WaitGroup
	for after := range 100 {
		wg.Go(func() {
			want := int64(after)
			for e, err := range m.Watch(t.Context(), id, want) {
				if want++; err != nil || e.Seq != want {
					t.Errorf("seq %d after %d: %v", e.Seq, want-1, err)
					return
				}
			}
			if want != 302 {
				t.Errorf("ended at %d", want)
			}
		})
	}
	wg.Wait()
}

func TestReaderThatStopsHoldsUpNobody(t *testing.T) {
	m := manager(t, &runner{chatty: 2000}, 1, 0)
	id := submit(t, m, "chat", "")
	for range m.Watch(t.Context(), id, 0) {
		_, err := m.Wait(t.Context(), id) // while this reader stands still
		require.NoError(t, err)
		break
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	m := manager(t, &runner{}, 1, 0)
	id := submit(t, m, "wait", "")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var last error
	for e, err := range m.Watch(ctx, id, 0) {
		if last = err; e.Type == run.EventStart {
			cancel(errors.New("enough"))
		}
	}
	require.ErrorContains(t, last, "enough")
	for _, err := range m.Watch(t.Context(), "../../etc/passwd", 0) {
		require.True(t, errdefs.IsNotFound(err))
	}
}

func TestRunnerThatPanicsOrForgetsItsEnd(t *testing.T) {
	m := manager(t, &runner{}, 1, 5)
	for _, source := range []string{"panic", "silent"} {
		result, err := m.Wait(t.Context(), submit(t, m, source, ""))
		require.NoError(t, err)
		require.Equal(t, run.Failed, result.State)
		require.Equal(t, run.CodeInternal, result.Error.Code)
	}
}

func TestCloseEndsWhatRunsAndWhatWaits(t *testing.T) {
	m := manager(t, &runner{}, 1, 5)
	running, queued := submit(t, m, "wait", ""), submit(t, m, "wait", "")
	require.NoError(t, m.Close(t.Context()))
	for _, id := range []string{running, queued} {
		s, err := m.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, run.Cancelled, s.State)
	}
	_, err := m.Submit(t.Context(), run.Request{Source: "ok"}, run.Caller{})
	require.True(t, errdefs.IsUnavailable(err))
	require.Error(t, m.Accepting())
}

func TestPruneForgetsTheOldest(t *testing.T) {
	dir := t.TempDir()
	m := managerIn(t, dir, &runner{}, 1, 20)
	for range 10 {
		_, err := m.Wait(t.Context(), submit(t, m, "ok", ""))
		require.NoError(t, err)
	}
	waiting := submit(t, m, "wait", "")
	gone, err := m.Prune(t.Context(), job.Retention{Count: 4, Age: time.Hour})
	require.NoError(t, err)
	require.Equal(t, 6, gone)
	page, _, err := m.List(t.Context(), job.Filter{})
	require.NoError(t, err)
	require.Len(t, page, 5)
	require.Equal(t, waiting, page[0].RunID)
	logs, err := filepath.Glob(filepath.Join(dir, "logs", "*", "*"))
	require.NoError(t, err)
	require.Len(t, logs, 5)
	gone, err = m.Prune(t.Context(), job.Retention{Bytes: 1})
	require.NoError(t, err)
	require.Equal(t, 4, gone)
}

func TestListPages(t *testing.T) {
	m := manager(t, &runner{}, 1, 100)
	for range 7 {
		submit(t, m, "ok", "x")
	}
	seen := map[string]bool{}
	after := ""
	for {
		page, next, err := m.List(t.Context(), job.Filter{Label: "x", Limit: 3, After: after})
		require.NoError(t, err)
		for _, s := range page {
			seen[s.RunID] = true
		}
		if next == "" {
			break
		}
		after = next
	}
	require.Len(t, seen, 7)
}

func TestTerminalRowNeverChanges(t *testing.T) {
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "x.db"))
	require.NoError(t, err)
	defer store.Close()
	row := job.Row{Owner: "o", Summary: run.Summary{RunID: "r", State: run.Queued, CreatedAt: time.Now().UTC().Truncate(time.Microsecond)}}
	require.NoError(t, store.Insert(t.Context(), row))
	require.True(t, errdefs.IsAlreadyExists(store.Insert(t.Context(), row)))
	row.State, row.Error = run.TimedOut, &run.Error{Code: run.CodeTimedOut, Message: "m"}
	require.NoError(t, store.Update(t.Context(), row))
	again := row
	again.State = run.Lost
	require.True(t, errdefs.IsFailedPrecondition(store.Update(t.Context(), again)))
	got, err := store.Get(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, row, got)
	_, err = store.Get(t.Context(), "s")
	require.True(t, errdefs.IsNotFound(err))
}

func decode(t *testing.T, line []byte) run.Event {
	t.Helper()
	var e run.Event
	require.NoError(t, json.Unmarshal(line, &e))
	return e
}
