package orchestrator

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"mcpx/artifacts"
	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
)

// collector takes a run's outbox into the store. What is not taken is told,
// never passed over.
type collector struct {
	ctx   context.Context // ends with the collection; engine.Outbox has no place for it
	store *artifacts.Store
	meta  artifacts.Meta
	emit  func(kind string, payload any) error

	filesLeft int
}

var _ engine.Outbox = (*collector)(nil)

// File opens a writer for one file, or skips it with the reason.
func (c *collector) File(name string, _ fs.FileMode, size int64) (engine.OutboxFile, error) {
	if c.filesLeft <= 0 {
		return nil, c.Skip(name, "the policy's outbox.files is reached")
	}
	c.filesLeft--
	meta := c.meta
	meta.Name, meta.Size = name, size
	w, err := c.store.Create(c.ctx, meta)
	if err != nil {
		return nil, c.refused(name, err)
	}
	return &collected{Writer: w, collector: c, name: name}, nil
}

// Skip records an entry that is not taken.
func (c *collector) Skip(name, reason string) error {
	return c.emit(run.EventSkip, &run.Skip{Name: name, Reason: reason})
}

// refused turns the store's refusal of one file into a skip: the others may
// still fit. Only a run whose log cannot be written has to stop.
func (c *collector) refused(name string, err error) error {
	if c.ctx.Err() != nil {
		return fmt.Errorf("collect %s: %w", name, context.Cause(c.ctx))
	}
	return c.Skip(name, err.Error())
}

// collectTimeout bounds the reading of one outbox; its size is limited anyway.
const collectTimeout = 5 * time.Minute

// collect takes what the script left, however it ended. An outbox that went
// with its container is told in the log.
func (a *attempt) collect(ctx context.Context) {
	grant := a.plan.Grant
	if a.ended.IsZero() || grant.OutboxBytes == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	err := a.container.Collect(ctx, &collector{
		ctx: ctx, store: a.config.Artifacts, emit: a.emit, filesLeft: grant.OutboxFiles,
		meta: a.meta(),
	})
	if err != nil {
		a.log.Warn("outbox was not read to its end", "error", err)
		a.emit(run.EventLog, &run.Log{Level: "warn", Code: "outbox_lost", //nolint:errcheck // emit has ended the run
			Message: "not all files of the outbox could be read: " + err.Error()})
		return
	}
	a.mark(&a.timings.Collected)
}

// collected is one file on its way into the store.
type collected struct {
	*artifacts.Writer
	collector *collector
	name      string
	failed    error
}

// Write keeps the first error and lets the rest of the file pass by, so that
// one refused file does not end the walk.
func (f *collected) Write(p []byte) (int, error) {
	if f.failed == nil {
		_, f.failed = f.Writer.Write(p)
	}
	return len(p), nil
}

// Commit makes the file an artifact and tells of it.
func (f *collected) Commit() error {
	if f.failed != nil {
		f.Writer.Abort()
		return f.collector.refused(f.name, f.failed)
	}
	artifact, err := f.Writer.Commit()
	if err != nil {
		return f.collector.refused(f.name, err)
	}
	ref := artifact.Ref()
	return f.collector.emit(run.EventArtifact, &ref)
}

// Abort tells that a file did not come whole.
func (f *collected) Abort() {
	f.Writer.Abort()
	f.collector.refused(f.name, errNotWhole) //nolint:errcheck // the walk is ending; its own error says why
}

var errNotWhole = fmt.Errorf("the file did not come whole")
