package job_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

func prune(t *testing.T, m *job.Manager, r job.Retention) int {
	t.Helper()
	gone, err := m.Prune(t.Context(), r)
	require.NoError(t, err)
	return gone
}

func TestPruneForgetsTheOldest(t *testing.T) {
	dir := t.TempDir()
	m := managerIn(t, dir, &runner{}, 1, 20)
	first, _ := finish(t, m, "ok")
	for range 9 {
		finish(t, m, "ok")
	}
	waiting := submit(t, m, "wait", "")
	require.Zero(t, prune(t, m, job.Retention{}))
	require.Equal(t, 6, prune(t, m, job.Retention{Count: 4, Age: time.Hour}))
	page := list(t, m, job.Filter{})
	require.Len(t, page, 5)
	require.Equal(t, waiting, page[0].RunID, "what has not ended stays")
	require.Len(t, logFiles(t, dir), 5)
	_, err := m.Result(t.Context(), first)
	require.True(t, errdefs.IsNotFound(err))
	require.Equal(t, 4, prune(t, m, job.Retention{Bytes: 1}))
}

func TestPruneGoesByTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runner{}
		m := managerOf(t, newMemory(), t.TempDir(), r, 2, 0)
		long := submit(t, m, "wait", "")
		for range 450 { // more than one batch
			finish(t, m, "ok")
			synctest.Wait()
		}
		<-time.After(2 * time.Hour)
		close(r.gate)
		_, err := m.Wait(t.Context(), long)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 450, prune(t, m, job.Retention{Age: time.Hour}))
		require.Equal(t, run.Exited, stateOf(t, m, long), "it was the first to begin")
		<-time.After(2 * time.Hour)
		require.Equal(t, 1, prune(t, m, job.Retention{Age: time.Hour}))
		require.NoError(t, m.Close(t.Context()))
	})
}

func TestRunWithoutItsLogSaysSo(t *testing.T) {
	dir := t.TempDir()
	m := managerIn(t, dir, &runner{}, 1, 1)
	id, _ := finish(t, m, "ok")
	removeAll(t, logFiles(t, dir))
	for _, err := range m.Watch(t.Context(), id, 0) {
		require.True(t, errdefs.IsNotFound(err))
		require.ErrorContains(t, err, "no longer kept")
	}
	require.Equal(t, 1, prune(t, m, job.Retention{Bytes: 1}), "and can be pruned")
}
