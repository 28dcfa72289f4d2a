package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// Watch yields the run's events with a seq above after, and goes on as they
// come until the end event. Readers read the file: one that is slow holds up
// nobody, and costs no memory. The last pair may be an error: ctx's cause, or
// errdefs.ErrNotFound for an unknown run or a log that is no longer kept.
func (m *Manager) Watch(ctx context.Context, id string, after int64) iter.Seq2[run.Event, error] {
	return func(yield func(run.Event, error) bool) {
		if err := m.watch(ctx, id, after, func(e run.Event) bool { return yield(e, nil) }); err != nil {
			yield(run.Event{}, err)
		}
	}
}

func (m *Manager) watch(ctx context.Context, id string, after int64, yield func(run.Event) bool) error {
	from, err := m.open(ctx, id)
	if err != nil {
		return err
	}
	defer from.file.Close()
	in := newLines(from)
	var last run.Event
	for ctx.Err() == nil {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			more, err := from.wait(ctx)
			if err != nil {
				return err
			}
			if !more {
				return m.watchMissing(ctx, id, last, after, yield)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("event log of run %s: %w", id, err)
		}
		last = run.Event{}
		if err := json.Unmarshal(line, &last); err != nil {
			return fmt.Errorf("event log of run %s: %w", id, err)
		}
		if last.Seq > after && !yield(last) || last.Type == run.EventEnd {
			return nil
		}
	}
	return context.Cause(ctx)
}

// watchMissing ends a log that has no end.
func (m *Manager) watchMissing(ctx context.Context, id string, last run.Event, after int64, yield func(run.Event) bool) error {
	row, err := m.row(ctx, id)
	if err != nil {
		return err
	}
	for _, e := range missing(row, last) {
		if e.Seq > after && !yield(e) {
			return nil
		}
	}
	return nil
}

// missing are the events that a log lacks because they could not be written:
// what the row of the ended run tells. Every reader gets the same ones.
func missing(row Row, last run.Event) []run.Event {
	at := last.TS
	if row.EndedAt != nil {
		at = *row.EndedAt
	}
	var events []run.Event
	add := func(kind string, payload any) {
		events = append(events, run.Event{Type: kind, Seq: last.Seq + int64(len(events)) + 1, TS: at, Payload: payload})
	}
	if last.Type != run.EventError {
		problem := row.Error
		if problem == nil {
			problem = &run.Error{Code: run.CodeInternal, Class: errdefs.ErrDataLoss, Message: "the event log is not whole"}
		}
		add(run.EventError, problem)
	}
	add(run.EventEnd, &run.End{
		RunID: row.RunID, State: row.State, ExitCode: row.ExitCode, Signal: row.Signal, DurationMs: row.DurationMs,
		TimedOut: row.State == run.TimedOut, OOMKilled: row.State == run.OOMKilled, Truncated: true,
	})
	return events
}

// Wait follows a run to its end and composes its result.
func (m *Manager) Wait(ctx context.Context, id string) (run.Result, error) {
	var fold run.Fold
	for e, err := range m.Watch(ctx, id, 0) {
		if err != nil {
			return run.Result{}, err
		}
		fold.Add(e)
	}
	return fold.Result(), nil
}

// Result composes the result of a run that has ended; errdefs.ErrFailedPrecondition
// while it has not.
func (m *Manager) Result(ctx context.Context, id string) (run.Result, error) {
	row, err := m.row(ctx, id)
	if err != nil {
		return run.Result{}, err
	}
	if !row.State.Terminal() {
		return run.Result{}, fmt.Errorf("run %s has not ended: %w", id, errdefs.ErrFailedPrecondition)
	}
	return m.Wait(ctx, id)
}
