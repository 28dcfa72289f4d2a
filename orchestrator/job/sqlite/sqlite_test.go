package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mcpx/orchestrator/job"
	"mcpx/orchestrator/job/sqlite"
	"mcpx/orchestrator/run"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("MCPX_TEST_WRITER"); path != "" {
		if err := write(context.Background(), path, fmt.Sprint(os.Getpid())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// gorm's statement cache starts a goroutine for each database and never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

const rowsEach = 100

// write is what a process of mcpx does to the file.
func write(ctx context.Context, path, owner string) error {
	s, err := sqlite.Open(path)
	if err != nil {
		return err
	}
	defer s.Close()
	for i := range rowsEach {
		at := time.Now()
		row := job.Row{Owner: owner, Summary: run.Summary{RunID: fmt.Sprintf("%s-%03d", owner, i), State: run.Queued, CreatedAt: at}}
		if err := s.Insert(ctx, row); err != nil {
			return fmt.Errorf("insert: %w", err)
		}
		row.State, row.EndedAt = run.Exited, &at
		if err := s.Update(ctx, row); err != nil {
			return fmt.Errorf("update: %w", err)
		}
		if _, _, err := s.List(ctx, job.Filter{Limit: 10}); err != nil {
			return fmt.Errorf("list: %w", err)
		}
	}
	return nil
}

func TestProcessesShareTheFileFromItsFirstMoment(t *testing.T) {
	const processes = 5
	path := filepath.Join(t.TempDir(), "mcpx.db")
	var all []*exec.Cmd
	for range processes {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "MCPX_TEST_WRITER="+path)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		all = append(all, cmd)
	}
	for _, cmd := range all {
		require.NoError(t, cmd.Wait())
	}
	s, err := sqlite.Open(path)
	require.NoError(t, err)
	defer s.Close()
	count, _, err := s.Total(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(processes*rowsEach), count)
}

func TestRowsSurviveAndAClosedStoreFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "mcpx.db")
	require.NoError(t, write(t.Context(), path, "o"))
	s, err := sqlite.Open(path)
	require.NoError(t, err)
	row, err := s.Get(t.Context(), "o-007")
	require.NoError(t, err)
	require.Equal(t, run.Exited, row.State)
	require.NoError(t, s.Close())
	_, err = s.Get(t.Context(), "o-007")
	require.Error(t, err)
	require.Error(t, s.Insert(t.Context(), row))
	require.Error(t, s.Update(t.Context(), row))
	require.Error(t, s.Delete(t.Context(), "o-007"))
	_, _, err = s.List(t.Context(), job.Filter{})
	require.Error(t, err)
}
