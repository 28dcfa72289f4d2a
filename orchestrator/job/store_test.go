package job_test

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/job"
	"mcpx/orchestrator/job/sqlite"
	"mcpx/orchestrator/run"
)

// memory is a store that a test can make fail, and that no goroutine of a
// database outlives.
type memory struct {
	mu     sync.Mutex
	rows   map[string]job.Row
	refuse error // what writes get
}

func newMemory() *memory { return &memory{rows: map[string]job.Row{}} }

func (s *memory) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

func (s *memory) Insert(_ context.Context, row job.Row) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.rows[row.RunID]; taken {
		return errdefs.ErrAlreadyExists
	}
	if s.refuse == nil {
		s.rows[row.RunID] = row
	}
	return s.refuse
}

func (s *memory) Update(_ context.Context, row job.Row) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return s.refuse
	}
	if old, ok := s.rows[row.RunID]; !ok || old.State.Terminal() {
		return errdefs.ErrFailedPrecondition
	}
	s.rows[row.RunID] = row
	return nil
}

func (s *memory) Get(_ context.Context, id string) (job.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row, ok := s.rows[id]
	if !ok {
		return job.Row{}, errdefs.ErrNotFound
	}
	return row, nil
}

// where yields the rows that match, the newest first.
func (s *memory) where(match func(job.Row) bool) []job.Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []job.Row{}
	for _, row := range s.rows {
		if match(row) {
			found = append(found, row)
		}
	}
	slices.SortFunc(found, func(a, b job.Row) int { return cmp.Compare(b.RunID, a.RunID) })
	return found
}

func (s *memory) List(_ context.Context, f job.Filter) ([]job.Row, string, error) {
	is := func(want, have string) bool { return want == "" || want == have }
	rows := s.where(func(r job.Row) bool {
		return is(f.Session, r.Session) && is(f.TaskHandle, r.TaskHandle) && is(f.Label, r.Label) && is(f.Principal, r.Principal) &&
			(len(f.States) == 0 || slices.Contains(f.States, r.State)) && (f.After == "" || r.RunID < f.After)
	})
	if limit := f.PageSize(); len(rows) > limit {
		return rows[:limit], rows[limit-1].RunID, nil
	}
	return rows, "", nil
}

func (s *memory) Unfinished(_ context.Context, owner string) ([]job.Row, error) {
	rows := s.where(func(r job.Row) bool { return r.Owner == owner && !r.State.Terminal() })
	slices.Reverse(rows)
	return rows, nil
}

func ended(r job.Row) bool { return r.State.Terminal() && r.EndedAt != nil }

func (s *memory) Oldest(_ context.Context, limit int) ([]job.Row, error) {
	rows := s.where(ended)
	slices.SortFunc(rows, func(a, b job.Row) int {
		return cmp.Or(a.EndedAt.Compare(*b.EndedAt), cmp.Compare(a.RunID, b.RunID))
	})
	return rows[:min(limit, len(rows))], nil
}

func (s *memory) Total(context.Context) (count, logBytes int64, err error) {
	for _, row := range s.where(ended) {
		count++
		logBytes += row.LogBytes
	}
	return count, logBytes, nil
}

func (s *memory) Delete(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.rows[id]; !ok {
		return errdefs.ErrNotFound
	}
	delete(s.rows, id)
	return s.refuse
}

// The contract of job.Store, sentence by sentence.
func TestStores(t *testing.T) {
	for name, open := range map[string]func(*testing.T) job.Store{
		"memory": func(*testing.T) job.Store { return newMemory() },
		"sqlite": func(t *testing.T) job.Store {
			s, err := sqlite.Open(filepath.Join(t.TempDir(), "x.db"))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Run("a row comes back as it was", func(t *testing.T) { rowComesBack(t, open(t)) })
			t.Run("a terminal row never changes", func(t *testing.T) { terminalStays(t, open(t)) })
			t.Run("filters and pages", func(t *testing.T) { filters(t, open(t)) })
			t.Run("unfinished rows of an owner", func(t *testing.T) { unfinished(t, open(t)) })
			t.Run("what ended first is the oldest", func(t *testing.T) { oldest(t, open(t)) })
		})
	}
}

var noon = time.Date(2026, 12, 1, 12, 0, 0, 123000, time.UTC)

func row(id string, state run.State) job.Row {
	return job.Row{Owner: "o", Summary: run.Summary{RunID: id, State: state, CreatedAt: noon}}
}

func rowComesBack(t *testing.T, s job.Store) {
	first := row("r", run.Queued)
	first.Summary.Label, first.Session, first.TaskHandle, first.Principal = "l", "s", "t", "p"
	first.Runtime, first.Image, first.Policy = "bash", "i", "q"
	require.NoError(t, s.Insert(t.Context(), first))
	require.True(t, errdefs.IsAlreadyExists(s.Insert(t.Context(), first)))
	got, err := s.Get(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, first, got)

	last, code, later := first, 3, noon.Add(time.Minute)
	last.State, last.ExitCode, last.Signal, last.DurationMs, last.LogBytes = run.TimedOut, &code, "SIGKILL", 7, 8
	last.StartedAt, last.EndedAt = &noon, &later
	last.Error = &run.Error{Code: run.CodeTimedOut, Message: "m", Field: "f", Hint: "h", Searched: []string{"x"}}
	require.NoError(t, s.Update(t.Context(), last))
	got, err = s.Get(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, last, got)

	require.NoError(t, s.Delete(t.Context(), "r"))
	require.True(t, errdefs.IsNotFound(s.Delete(t.Context(), "r")))
	_, err = s.Get(t.Context(), "r")
	require.True(t, errdefs.IsNotFound(err))
	require.True(t, errdefs.IsFailedPrecondition(s.Update(t.Context(), last)))
}

func terminalStays(t *testing.T, s job.Store) {
	for _, state := range []run.State{run.Exited, run.Signalled, run.TimedOut, run.OOMKilled, run.OutputLimit, run.Cancelled,
		run.Denied, run.Failed, run.Lost} {
		require.True(t, state.Terminal())
		id := string(state)
		require.NoError(t, s.Insert(t.Context(), row(id, run.Queued)))
		for _, next := range []run.State{run.Starting, run.Running, state} {
			require.NoError(t, s.Update(t.Context(), row(id, next)))
		}
		for _, next := range []run.State{run.Running, run.Lost, state} {
			require.True(t, errdefs.IsFailedPrecondition(s.Update(t.Context(), row(id, next))))
		}
		got, err := s.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, state, got.State)
	}
}

func filters(t *testing.T, s job.Store) {
	for i := range 6 {
		r := row(fmt.Sprint("r", i), run.Queued)
		r.Principal, r.Session, r.TaskHandle, r.Label = fmt.Sprint("p", i%2), fmt.Sprint("s", i%3), fmt.Sprint("t", i/3), "l"
		require.NoError(t, s.Insert(t.Context(), r))
		if i > 3 {
			r.State = run.Exited
			require.NoError(t, s.Update(t.Context(), r))
		}
	}
	for want, f := range map[string]job.Filter{
		"[r5 r4 r3 r2 r1 r0] ": {},
		"[r5 r3 r1] ":          {Principal: "p1"},
		"[r5 r2] ":             {Session: "s2", Label: "l"},
		"[r2 r1 r0] ":          {TaskHandle: "t0"},
		"[] ":                  {Label: "x"},
		"[r5 r4] r4":           {Limit: 2},
		"[r3 r2] r2":           {Limit: 2, After: "r4"},
		"[r1 r0] ":             {Limit: 2, After: "r2"},
		"[r5 r4] ":             {States: []run.State{run.Exited, run.Lost}},
		"[r3] r3":              {States: []run.State{run.Queued}, Limit: 1},
		"[r3 r1] ":             {States: []run.State{run.Queued}, Principal: "p1"},
	} {
		rows, next, err := s.List(t.Context(), f)
		require.NoError(t, err)
		ids := []string{}
		for _, r := range rows {
			ids = append(ids, r.RunID)
		}
		require.Equal(t, want, fmt.Sprint(ids, " ", next), "%+v", f)
	}
}

func unfinished(t *testing.T, s job.Store) {
	for id, state := range map[string]run.State{"a": run.Queued, "b": run.Starting, "c": run.Running, "d": run.Exited} {
		require.NoError(t, s.Insert(t.Context(), row(id, state)))
	}
	other := row("e", run.Running)
	other.Owner = "another"
	require.NoError(t, s.Insert(t.Context(), other))
	rows, err := s.Unfinished(t.Context(), "o")
	require.NoError(t, err)
	require.Len(t, rows, 3)
	require.Equal(t, "a", rows[0].RunID)
}

func oldest(t *testing.T, s job.Store) {
	for i, id := range []string{"c", "a", "b"} { // in the order of their ends
		r, at := row(id, run.Exited), noon.Add(time.Duration(i)*time.Hour)
		r.EndedAt, r.LogBytes = &at, 10
		require.NoError(t, s.Insert(t.Context(), r))
	}
	require.NoError(t, s.Insert(t.Context(), row("0", run.Running)))
	count, bytes, err := s.Total(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{3, 30}, []int64{count, bytes})
	rows, err := s.Oldest(t.Context(), 2)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, []string{"c", "a"}, []string{rows[0].RunID, rows[1].RunID})
}
