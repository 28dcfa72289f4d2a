package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// Recover ends the runs of processes that died: their logs get an end, their
// rows the state lost. It is idempotent: a log that had its end keeps it, and
// gives the row its state.
func (m *Manager) Recover(ctx context.Context, deadOwners []string) (int, error) {
	lost := 0
	var failed []error
	for _, owner := range deadOwners {
		rows, err := m.config.Store.Unfinished(ctx, owner)
		if err != nil {
			return lost, err
		}
		for _, row := range rows {
			if err := m.recoverRun(ctx, row); err != nil {
				failed = append(failed, fmt.Errorf("run %s: %w", row.RunID, err))
				continue
			}
			lost++
		}
	}
	return lost, errors.Join(failed...)
}

func (m *Manager) recoverRun(ctx context.Context, row Row) error {
	log, last, err := reopenLog(m.config.LogDir, row.RunID)
	if err != nil {
		return err
	}
	end, ended := last.Payload.(*run.End)
	if !ended {
		end = &run.End{RunID: row.RunID, State: run.Lost}
		problem := &run.Error{Code: run.CodeLost, Message: lostMessage(row.State)}
		row.Error = problem
		if err := errors.Join(log.append(run.EventError, problem), log.appendEnd(end)); err != nil {
			log.publishEnd(err)
			return err
		}
	}
	now := time.Now().UTC()
	row.State, row.ExitCode, row.Signal, row.EndedAt = end.State, end.ExitCode, end.Signal, &now
	row.DurationMs, row.LogBytes = end.DurationMs, log.length()
	log.publishEnd(nil)
	return m.config.Store.Update(ctx, row)
}

func lostMessage(state run.State) string {
	if state == run.Queued {
		return "the daemon died while the run waited; it never started"
	}
	return "the daemon died while the run was under way; what the script did until then may have been done"
}

// Retention bounds what is kept of ended runs; 0 bounds nothing.
type Retention struct {
	Age   time.Duration
	Count int64
	Bytes int64 // of event logs
}

// pruneBatch is how many runs are looked at in one go.
const pruneBatch = 200

// Prune deletes rows and logs of ended runs, the oldest first, until what is
// left is within r. It returns how many went.
func (m *Manager) Prune(ctx context.Context, r Retention) (int, error) {
	gone := 0
	for {
		n, more, err := m.pruneSome(ctx, r)
		gone += n
		if err != nil || !more {
			return gone, err
		}
	}
}

func (m *Manager) pruneSome(ctx context.Context, r Retention) (gone int, more bool, err error) {
	count, bytes, err := m.config.Store.Total(ctx)
	if err != nil {
		return 0, false, err
	}
	rows, err := m.config.Store.Oldest(ctx, pruneBatch)
	if err != nil {
		return 0, false, err
	}
	for _, row := range rows {
		old := r.Age > 0 && row.EndedAt != nil && time.Since(*row.EndedAt) > r.Age
		many := r.Count > 0 && count > r.Count
		large := r.Bytes > 0 && bytes > r.Bytes
		if !old && !many && !large {
			return gone, false, nil
		}
		if err := m.forget(ctx, row.RunID); err != nil {
			return gone, false, err
		}
		gone++
		count--
		bytes -= row.LogBytes
	}
	return gone, len(rows) == pruneBatch, nil
}

// forget removes the log first: a row without a log says so, a log without a
// row would never be found.
func (m *Manager) forget(ctx context.Context, id string) error {
	if err := os.Remove(logPath(m.config.LogDir, id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("event log of run %s: %w", id, err)
	}
	if err := m.config.Store.Delete(ctx, id); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return nil
}
