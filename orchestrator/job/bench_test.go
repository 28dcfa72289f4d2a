package job_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"mcpx/orchestrator/job"
	"mcpx/orchestrator/job/sqlite"
	"mcpx/orchestrator/run"
)

// What the manager adds to a run: rows, log, fsync, reading.
func BenchmarkSubmitToEnd(b *testing.B) {
	dir := b.TempDir()
	store, err := sqlite.Open(filepath.Join(dir, "mcpx.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	m, err := job.New(job.Config{Runner: &runner{}, Store: store, LogDir: filepath.Join(dir, "logs"), Owner: "me",
		Slots: 1, Queue: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close(context.Background())
	for b.Loop() {
		id, err := m.Submit(b.Context(), request("ok", ""), run.Caller{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := m.Wait(b.Context(), id); err != nil {
			b.Fatal(err)
		}
	}
}
