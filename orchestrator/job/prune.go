package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/errdefs"
)

// Retention bounds what is kept of ended runs; 0 bounds nothing.
type Retention struct {
	Age   time.Duration
	Count int64
	Bytes int64 // of event logs
}

// kept is what there is of ended runs.
type kept struct{ count, bytes int64 }

// exceeds reports whether row, the first that ended of all that are kept, must go.
func (k kept) exceeds(r Retention, row Row) bool {
	old := r.Age > 0 && row.EndedAt != nil && time.Since(*row.EndedAt) > r.Age
	return old || r.Count > 0 && k.count > r.Count || r.Bytes > 0 && k.bytes > r.Bytes
}

// pruneBatch is how many runs are looked at in one go.
const pruneBatch = 200

// Prune deletes rows and logs of ended runs, the first that ended first, until
// what is left is within r. It returns how many went.
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
	var k kept
	if k.count, k.bytes, err = m.config.Store.Total(ctx); err != nil {
		return 0, false, err
	}
	rows, err := m.config.Store.Oldest(ctx, pruneBatch)
	if err != nil {
		return 0, false, err
	}
	for _, row := range rows {
		if !k.exceeds(r, row) {
			return gone, false, nil
		}
		if err := m.forget(ctx, row.RunID); err != nil {
			return gone, false, err
		}
		gone++
		k.count--
		k.bytes -= row.LogBytes
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
