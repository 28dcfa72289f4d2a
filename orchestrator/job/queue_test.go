package job_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

func TestQueueIsFirstInFirstOut(t *testing.T) {
	r := &runner{}
	m := manager(t, r, 1, 50)
	submit(t, m, "wait", "0")
	want := []string{"0"}
	var last string
	for i := range 40 {
		last = submit(t, m, "ok", fmt.Sprint(i+1))
		want = append(want, fmt.Sprint(i+1))
	}
	close(r.gate)
	_, err := m.Wait(t.Context(), last)
	require.NoError(t, err)
	require.Equal(t, want, r.begun)
}

// places are the positions that a run was told.
func places(t *testing.T, m *job.Manager, id string) []int {
	t.Helper()
	var told []int
	for e, err := range m.Watch(t.Context(), id, 0) {
		require.NoError(t, err)
		if p, ok := e.Payload.(*run.QueuedFrame); ok {
			told = append(told, p.Position)
		}
	}
	return told
}

func TestWaitingAreToldTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runner{}
		m := managerOf(t, newMemory(), t.TempDir(), r, 1, 100)
		var ids []string
		for range 41 {
			ids = append(ids, submit(t, m, "wait", ""))
		}
		for _, id := range ids[:40] { // each that goes lets the next one in
			_, err := m.Cancel(t.Context(), id, run.ErrCancelled)
			require.NoError(t, err)
			synctest.Wait()
		}
		close(r.gate)
		require.Empty(t, places(t, m, ids[0]), "who did not wait is not told of a queue")
		require.Equal(t, []int{3, 2, 1}, places(t, m, ids[3]))
		require.Equal(t, []int{40, 20, 10, 8, 7, 6, 5, 4, 3, 2, 1}, places(t, m, ids[40]))
		require.NoError(t, m.Close(t.Context()))
	})
}

func TestWhoLeavesTheQueueMovesTheOthersUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runner{}
		m := managerOf(t, newMemory(), t.TempDir(), r, 1, 10)
		submit(t, m, "wait", "")
		leaves, stays := submit(t, m, "ok", "leaves"), submit(t, m, "ok", "stays")
		outcome, err := m.Cancel(t.Context(), leaves, run.ErrClientGone)
		require.NoError(t, err)
		require.Equal(t, job.Accepted, outcome)
		require.Equal(t, run.Cancelled, stateOf(t, m, leaves), "it has ended when Cancel returns")
		require.Equal(t, "queued error end", kinds(t, m, leaves))
		synctest.Wait()
		close(r.gate)
		require.Equal(t, []int{2, 1}, places(t, m, stays))
		require.NotContains(t, r.begun, "leaves")
		require.NoError(t, m.Close(t.Context()))
	})
}
