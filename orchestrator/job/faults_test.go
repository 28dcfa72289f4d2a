package job_test

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

// limitFiles makes writes beyond a size fail, as a full disk does: the last one
// is cut off in the middle of a line. It needs no rights.
func limitFiles(t *testing.T, size uint64) (restore func()) {
	t.Helper()
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	signal.Ignore(syscall.SIGXFSZ)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: before.Max}))
	restore = func() {
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))
		signal.Reset(syscall.SIGXFSZ)
	}
	t.Cleanup(restore)
	return restore
}

func TestRunEndsWhenItsLogCannotBeWritten(t *testing.T) {
	store, dir := newMemory(), t.TempDir()
	m := managerOf(t, store, dir, &runner{chatty: 1_000_000}, 1, 5)
	restore := limitFiles(t, 10_000)
	id := submit(t, m, "chat", "")
	var last int64
	for e, err := range m.Watch(t.Context(), id, 0) {
		require.NoError(t, err)
		require.Equal(t, last+1, e.Seq)
		last = e.Seq
	}
	result, err := m.Wait(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, run.Failed, result.State)
	require.Equal(t, run.CodeInternal, result.Error.Code)
	require.Contains(t, result.Error.Message, "file too large")
	require.Contains(t, result.Stdout, "0\n1\n2\n", "what was written stays readable")
	require.True(t, result.Truncated)
	require.Equal(t, run.Failed, stateOf(t, m, id))
	restore()

	text, err := os.ReadFile(logFiles(t, dir)[0])
	require.NoError(t, err)
	require.True(t, bytes.HasSuffix(text, []byte("\"}\n")), "no half line is left")
	for range m.Watch(t.Context(), id, last) {
		t.Error("nothing comes after the end")
	}
	_, next := finish(t, m, "ok")
	require.Equal(t, run.Exited, next.State)
	require.NoError(t, m.Close(t.Context()))

	another := managerOf(t, store, dir, &runner{}, 1, 5)
	again, err := another.Result(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, result, again, "who reads it later sees the same")
	require.NoError(t, another.Close(t.Context()))
}

func TestRunWhoseLogCannotBeMadeIsNotAdmitted(t *testing.T) {
	store, dir := newMemory(), t.TempDir()
	m := managerOf(t, store, dir, &runner{}, 1, 0)
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o600)) // where the directory was
	_, err := m.Submit(t.Context(), request("ok", ""), run.Caller{})
	require.ErrorIs(t, err, syscall.ENOTDIR)
	require.Empty(t, list(t, m, job.Filter{}))
	require.NoError(t, os.Remove(dir))
	_, result := finish(t, m, "ok")
	require.Equal(t, run.Exited, result.State, "the place was given back")
	require.NoError(t, m.Close(t.Context()))
}

func TestRowThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		m := managerOf(t, store, t.TempDir(), &runner{}, 1, 0)
		id := submit(t, m, "wait", "")
		synctest.Wait()
		full := errors.New("disk is full")
		store.fail(full)
		_, err := m.Cancel(t.Context(), id, run.ErrCancelled)
		require.NoError(t, err)
		result, err := m.Wait(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, run.Cancelled, result.State)
		synctest.Wait()
		require.Equal(t, run.Cancelled, stateOf(t, m, id))
		require.Zero(t, m.Stats().Running, "its slot is free")
		row, err := store.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, run.Running, row.State)
		_, err = m.Submit(t.Context(), request("ok", ""), run.Caller{})
		require.ErrorIs(t, err, full)

		store.fail(nil)
		<-time.After(2 * time.Second)
		synctest.Wait()
		row, err = store.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, run.Cancelled, row.State)
		require.Equal(t, run.Cancelled, stateOf(t, m, id))
		require.NoError(t, m.Close(t.Context()))
	})
}

func TestCloseTellsOfRowsThatAreStillDue(t *testing.T) {
	store, dir := newMemory(), t.TempDir()
	m := managerOf(t, store, dir, &runner{}, 1, 0)
	id := submit(t, m, "wait", "")
	for e, err := range m.Watch(t.Context(), id, 0) {
		require.NoError(t, err)
		if e.Type == run.EventStart {
			break
		}
	}
	store.fail(errors.New("disk is full"))
	require.ErrorContains(t, m.Close(t.Context()), "disk is full")
	store.fail(nil)

	next := managerOf(t, store, dir, &runner{}, 1, 0)
	lost, err := next.Recover(t.Context(), []string{"me"})
	require.NoError(t, err)
	require.Zero(t, lost)
	require.Equal(t, run.Cancelled, stateOf(t, next, id), "the log had told its end")
	require.Equal(t, "start error end", kinds(t, next, id))
	require.NoError(t, next.Close(t.Context()))
}
