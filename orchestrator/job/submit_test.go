package job_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

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
	require.Equal(t, []run.Summary{s}, list(t, m, job.Filter{}))
	require.Equal(t, "start end", kinds(t, m, id))
	again, err := m.Result(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, r, again)
}

func TestRowIsThereWhenSubmitReturns(t *testing.T) {
	dir := t.TempDir()
	m := managerIn(t, dir, &runner{}, 1, 1)
	other := managerIn(t, dir, &runner{}, 1, 1)
	submit(t, m, "wait", "")
	id := submit(t, m, "wait", "")
	require.Equal(t, run.Queued, stateOf(t, m, id))
	require.Equal(t, run.Queued, stateOf(t, other, id), "also for another process")
	_, err := m.Result(t.Context(), id)
	require.True(t, errdefs.IsFailedPrecondition(err))
}

func TestNeverMoreThanTheSlots(t *testing.T) {
	const slots = 20
	r := &runner{meet: slots}
	m := manager(t, r, slots, 1000)
	var wg sync.WaitGroup
	for range 500 {
		wg.Go(func() {
			id, err := m.Submit(t.Context(), request("meet", ""), run.Caller{})
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
	require.Equal(t, int64(slots), r.most.Load())
	require.Len(t, list(t, m, job.Filter{Limit: 1000, States: []run.State{run.Exited}}), 500)
	require.Len(t, r.begun, 500)
}

func TestFullQueueSaysWhenToAskAgain(t *testing.T) {
	dir := t.TempDir()
	m := managerIn(t, dir, &runner{}, 2, 3)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			_, err := m.Submit(t.Context(), request("wait", ""), run.Caller{})
			if err == nil {
				admitted.Add(1)
			} else if !errdefs.IsResourceExhausted(err) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(5), admitted.Load())
	require.Equal(t, job.Stats{Running: 2, Queued: 3, Slots: 2, Queue: 3}, m.Stats())
	require.Len(t, list(t, m, job.Filter{}), 5, "what was not admitted leaves nothing")
	require.Len(t, logFiles(t, dir), 5)

	_, err := m.Submit(t.Context(), request("ok", ""), run.Caller{})
	var full *job.FullError
	require.ErrorAs(t, err, &full)
	require.Positive(t, full.RetryAfter)
	var known *run.Error
	require.ErrorAs(t, err, &known)
	require.Equal(t, run.CodeQueueFull, known.Code)
}

func TestBadRequestLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	m := managerIn(t, dir, &runner{}, 1, 1)
	_, err := m.Submit(t.Context(), request("bad", ""), run.Caller{})
	require.True(t, errdefs.IsInvalidArgument(err))
	require.Empty(t, list(t, m, job.Filter{}))
	require.Empty(t, logFiles(t, dir))
}

func TestDenialIsRecordedAlsoWithoutRoom(t *testing.T) {
	m := manager(t, &runner{}, 1, 0)
	submit(t, m, "wait", "")
	_, err := m.Submit(t.Context(), request("denied", "l"), run.Caller{Principal: "p"})
	require.True(t, errdefs.IsPermissionDenied(err))
	page := list(t, m, job.Filter{States: []run.State{run.Denied}, Principal: "p"})
	require.Len(t, page, 1)
	require.Equal(t, run.CodeDenied, page[0].Error.Code)
	require.Equal(t, "l", page[0].Label)
	require.Nil(t, page[0].StartedAt)
	require.Equal(t, "error end", kinds(t, m, page[0].RunID))
	require.Equal(t, 1, m.Stats().Running, "it took no place")
}

func TestIdsSortAsTheRunsCame(t *testing.T) {
	m := manager(t, &runner{}, 1, 200)
	var ids []string
	for range 100 {
		ids = append(ids, submit(t, m, "ok", ""))
	}
	require.True(t, slices.IsSorted(ids))
	require.Len(t, slices.Compact(slices.Clone(ids)), 100)
	require.Regexp(t, `^run-[0-9a-z]{26}$`, ids[0])
}

func TestListPages(t *testing.T) {
	m := manager(t, &runner{}, 1, 100)
	var ids, seen []string
	for range 7 {
		ids = append(ids, submit(t, m, "ok", "x"))
	}
	submit(t, m, "ok", "y")
	after := ""
	for {
		page, next, err := m.List(t.Context(), job.Filter{Label: "x", Limit: 3, After: after})
		require.NoError(t, err)
		for _, s := range page {
			seen = append(seen, s.RunID)
		}
		if next == "" {
			break
		}
		after = next
	}
	slices.Reverse(seen)
	require.Equal(t, ids, seen)
}

func TestRunnerThatDoesNotTellAnEnd(t *testing.T) {
	m := manager(t, &runner{}, 1, 5)
	for _, source := range []string{"panic", "silent", "no ending"} {
		t.Run(source, func(t *testing.T) {
			id, result := finish(t, m, source)
			require.Equal(t, run.Failed, result.State)
			require.Equal(t, run.CodeInternal, result.Error.Code)
			require.Equal(t, run.Failed, stateOf(t, m, id))
			require.Equal(t, "start error end", kinds(t, m, id))
		})
	}
	_, result := finish(t, m, "ok")
	require.Equal(t, run.Exited, result.State)
}

func TestNothingFollowsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runner{}
		m := managerOf(t, newMemory(), t.TempDir(), r, 1, 5)
		id := submit(t, m, "late", "")
		synctest.Wait()
		require.Equal(t, 1, m.Stats().Running, "the runner is still busy with it")
		outcomes := make(chan job.Outcome, 1)
		go func() {
			outcome, err := m.Cancel(t.Context(), id, run.ErrCancelled)
			if err != nil {
				t.Error(err)
			}
			outcomes <- outcome
		}()
		synctest.Wait()
		require.Empty(t, outcomes)
		close(r.gate)
		require.Equal(t, job.AlreadyFinished, <-outcomes)
		require.Equal(t, run.Exited, stateOf(t, m, id))
		require.Equal(t, "start end", kinds(t, m, id))
		require.True(t, errdefs.IsFailedPrecondition(r.late), "%v", r.late)
		require.NoError(t, m.Close(t.Context()))
	})
}

// Who runs one script after the other is never told of a queue.
func TestWhoHasSeenTheEndFindsTheSlotFree(t *testing.T) {
	m := manager(t, &runner{}, 1, 0)
	for range 200 {
		id, _ := finish(t, m, "ok")
		require.Equal(t, "start end", kinds(t, m, id))
	}
}
