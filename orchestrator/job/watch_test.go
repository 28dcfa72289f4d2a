package job_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/run"
)

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

func TestReconnectingReaderMissesNothing(t *testing.T) {
	m := manager(t, &runner{chatty: 300}, 1, 0)
	id := submit(t, m, "chat", "")
	seen, over := int64(0), false
	for pause := int64(1); !over; pause++ { // it is cut off after 1, 2, 3 … events
		until := seen + pause
		for e, err := range m.Watch(t.Context(), id, seen) {
			require.NoError(t, err)
			require.Equal(t, seen+1, e.Seq)
			seen, over = e.Seq, e.Type == run.EventEnd
			if seen == until {
				break
			}
		}
	}
	require.Equal(t, int64(302), seen)
	for range m.Watch(t.Context(), id, seen) {
		t.Error("nothing comes after the end")
	}
}

func TestReaderThatStopsHoldsUpNobody(t *testing.T) {
	m := manager(t, &runner{chatty: 2000}, 1, 0)
	id := submit(t, m, "chat", "")
	read := 0
	for _, err := range m.Watch(t.Context(), id, 0) {
		require.NoError(t, err)
		if read == 0 {
			_, err := m.Wait(t.Context(), id) // while this reader stands still
			require.NoError(t, err)
		}
		read++
	}
	require.Equal(t, 2002, read)
}

func TestEventLongerThanAnyBuffer(t *testing.T) {
	m := manager(t, &runner{}, 1, 0)
	_, result := finish(t, m, "large")
	require.Equal(t, len(large), len(result.Stdout))
	require.True(t, large == result.Stdout)
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
}

// A context that has ended ends also a reader who is far from the log's end.
func TestWatchDoesNotReadOnForNobody(t *testing.T) {
	m := manager(t, &runner{chatty: 2000}, 1, 0)
	id, _ := finish(t, m, "chat")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read := 0
	for _, err := range m.Watch(ctx, id, 0) {
		if read++; err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		cancel()
	}
	require.Equal(t, 2, read, "one event, one error")
}

func TestUnknownRuns(t *testing.T) {
	m := manager(t, &runner{}, 1, 0)
	for _, id := range []string{"", "run-", "../../etc/passwd", "run-/../../../../../../../etc/pa", "run-00000000000000000000000000",
		"run-0000000000000000000000000\n", "RUN-00000000000000000000000000"} {
		seen := 0
		for _, err := range m.Watch(t.Context(), id, 0) {
			seen++
			require.True(t, errdefs.IsNotFound(err), "%q: %v", id, err)
		}
		require.Equal(t, 1, seen)
		_, err := m.Get(t.Context(), id)
		require.True(t, errdefs.IsNotFound(err))
		_, err = m.Result(t.Context(), id)
		require.True(t, errdefs.IsNotFound(err))
	}
}

// A reader in this process follows the log of another one that lives.
func TestLogOfAnotherProcessCanBeRead(t *testing.T) {
	dir := t.TempDir()
	mine := managerIn(t, dir, &runner{}, 1, 1)
	r := &runner{}
	others := managerIn(t, dir, r, 1, 1)
	id := submit(t, others, "wait", "")
	_, err := mine.Cancel(t.Context(), id, run.ErrCancelled)
	require.True(t, errdefs.IsConflict(err), "it is not ours to end")
	var types []string
	for e, err := range mine.Watch(t.Context(), id, 0) {
		require.NoError(t, err)
		if types = append(types, e.Type); e.Type == run.EventStart {
			close(r.gate)
		}
	}
	require.Equal(t, []string{run.EventStart, run.EventEnd}, types)
}
