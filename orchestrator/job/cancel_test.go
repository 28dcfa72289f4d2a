package job_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

func TestCancelOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runner{}
		m := managerOf(t, newMemory(), t.TempDir(), r, 1, 5)
		cancel := func(id string, cause error) job.Outcome {
			o, err := m.Cancel(t.Context(), id, cause)
			require.NoError(t, err)
			return o
		}
		stubborn := submit(t, m, "stubborn", "")
		queued := submit(t, m, "ok", "")
		require.Equal(t, job.Accepted, cancel(queued, run.ErrCancelled))
		require.Equal(t, job.AlreadyFinished, cancel(queued, run.ErrCancelled))
		require.Equal(t, job.Accepted, cancel(stubborn, run.ErrCancelled))
		require.Equal(t, job.Idempotent, cancel(stubborn, run.ErrClientGone))
		require.Equal(t, job.Idempotent, cancel(stubborn, run.ErrCancelled))
		close(r.gate)
		synctest.Wait()
		require.Equal(t, job.AlreadyFinished, cancel(stubborn, run.ErrCancelled))
		require.Equal(t, run.Exited, stateOf(t, m, stubborn), "what the runner says counts, not what was asked for")
		_, err := m.Cancel(t.Context(), "run-00000000000000000000000000", run.ErrCancelled)
		require.True(t, errdefs.IsNotFound(err))
		require.NoError(t, m.Close(t.Context()))
	})
}

func TestFirstCauseStays(t *testing.T) {
	m := manager(t, &runner{}, 1, 5)
	id := submit(t, m, "wait", "")
	for _, cause := range []error{run.ErrClientGone, run.ErrCancelled} {
		_, err := m.Cancel(t.Context(), id, cause)
		require.NoError(t, err)
	}
	result, err := m.Wait(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, run.Cancelled, result.State)
	require.Equal(t, run.ErrClientGone.Error(), result.Error.Message)
}

// Slots become free, runs are cancelled from two sides, and readers come, all at once.
func TestEveryRunEndsOnceWhateverComesTogether(t *testing.T) {
	m := manager(t, &runner{chatty: 3}, 3, 300)
	var wg sync.WaitGroup
	for range 150 {
		wg.Go(func() {
			id, err := m.Submit(t.Context(), request("chat", ""), run.Caller{})
			if err != nil {
				t.Error(err)
				return
			}
			for range 2 {
				wg.Go(func() {
					if _, err := m.Cancel(t.Context(), id, run.ErrCancelled); err != nil {
						t.Error(err)
					}
				})
			}
			ends := 0
			for e, err := range m.Watch(t.Context(), id, 0) {
				if err != nil {
					t.Error(err)
				}
				if e.Type == run.EventEnd {
					ends++
				}
			}
			if s, err := m.Get(t.Context(), id); err != nil || !s.State.Terminal() || ends != 1 {
				t.Errorf("%s: %v, %d ends, %v", id, s.State, ends, err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, m.Close(t.Context()))
	require.Equal(t, job.Stats{Slots: 3, Queue: 300}, m.Stats())
}

func TestCloseEndsWhatRunsAndWhatWaits(t *testing.T) {
	r := &runner{}
	m := manager(t, r, 1, 5)
	running, queued := submit(t, m, "wait", "running"), submit(t, m, "wait", "queued")
	require.NoError(t, m.Close(t.Context()))
	for _, id := range []string{running, queued} {
		result, err := m.Result(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, run.Cancelled, result.State)
		require.Contains(t, result.Error.Message, run.ErrShutdown.Error())
	}
	require.Equal(t, "queued error end", kinds(t, m, queued))
	require.NotContains(t, r.begun, "queued")
	_, err := m.Submit(t.Context(), request("ok", ""), run.Caller{})
	require.True(t, errdefs.IsUnavailable(err))
	require.Error(t, m.Accepting())
	require.NoError(t, m.Close(t.Context()), "it can be closed again")
}

func TestCloseWaitsForWhoIsAtTheDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, dir := &runner{}, t.TempDir()
		m := managerOf(t, newMemory(), dir, r, 1, 5)
		submitted, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := m.Submit(t.Context(), request("plan slowly", ""), run.Caller{})
			submitted <- err
		}()
		synctest.Wait()
		go func() { closed <- m.Close(t.Context()) }()
		synctest.Wait()
		require.Empty(t, closed)
		close(r.gate)
		require.True(t, errdefs.IsUnavailable(<-submitted))
		require.NoError(t, <-closed)
		require.Empty(t, list(t, m, job.Filter{}))
		require.Empty(t, logFiles(t, dir))
	})
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	r := &runner{}
	m := manager(t, r, 1, 5)
	id := submit(t, m, "stubborn", "")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no more time"))
	require.ErrorContains(t, m.Close(ctx), "no more time")
	close(r.gate)
	require.NoError(t, m.Close(t.Context()))
	require.Equal(t, run.Exited, stateOf(t, m, id))
}
