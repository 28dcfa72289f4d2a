package cli

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"mcpx/api/auth"
	"mcpx/api/rest"
	"mcpx/artifacts"
	"mcpx/cmd/internal/daemon"
	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

// local does in this process what a client has a daemon do.
type local struct {
	app     *app
	runtime *daemon.Runtime
	log     *slog.Logger
}

// openLocal opens the state directory. in is what a script is to read as it
// comes; nil for nothing.
func (a *app) openLocal(ctx context.Context, config daemon.Config, in io.Reader) (*local, error) {
	log := a.commandLog(config)
	r, err := daemon.Open(ctx, config, daemon.Options{Log: log, Stdin: in})
	if err != nil {
		return nil, err
	}
	return &local{app: a, runtime: r, log: log}, nil
}

// commandLog tells people what went wrong, as lines of mcpx.
func (a *app) commandLog(config daemon.Config) *slog.Logger {
	level := slog.LevelWarn
	if config.LogLevel != "" {
		level.UnmarshalText([]byte(config.LogLevel)) //nolint:errcheck // the setting's words are slog's
	}
	return slog.New(slog.NewTextHandler(&prefixed{a}, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, at slog.Attr) slog.Attr {
			if len(groups) == 0 && at.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return at
		},
	}))
}

// prefixed writes each line as one of ours.
type prefixed struct{ app *app }

func (p *prefixed) Write(line []byte) (int, error) {
	p.app.say("%s", bytes.TrimSpace(line))
	return len(line), nil
}

// Close ends what runs and, now and then, tidies up: without a daemon nobody
// else does.
func (l *local) Close() {
	ctx := context.Background()
	if tidyDue(l.runtime.Config.State) {
		if err := l.runtime.Tidy(ctx); err != nil {
			l.log.Warn("tidying up", "error", err)
		}
	}
	if err := l.runtime.Close(ctx); err != nil {
		l.log.Warn("not everything could be cleared away; the next start will", "error", err)
	}
}

const tidyInterval = time.Hour

// tidyDue is true once in an interval, for one process.
func tidyDue(state string) bool {
	stamp := filepath.Join(state, "tidied")
	info, err := os.Stat(stamp)
	if err == nil && time.Since(info.ModTime()) < tidyInterval {
		return false
	}
	return os.WriteFile(stamp, nil, 0o600) == nil
}

// Exec carries a request out and tells its events as they happen. When ctx ends
// it is cancelled, and Exec still waits for its end.
func (l *local) Exec(ctx context.Context, req run.Request, yield func(run.Event) error) (run.Result, error) {
	whole := context.WithoutCancel(ctx)
	m := l.runtime.Manager
	id, err := m.Submit(ctx, req, run.Caller{Principal: auth.PrincipalLocal, SharedFs: true})
	if err != nil {
		return run.Result{}, err
	}
	cancel := func(cause error) {
		if _, err := m.Cancel(whole, id, cause); err != nil {
			l.log.Error("run cannot be cancelled", "run", id, "error", err)
		}
	}
	stop := context.AfterFunc(ctx, func() { cancel(run.ErrCancelled) })
	defer stop()
	var fold run.Fold
	var refused error
	for event, err := range m.Watch(whole, id, 0) {
		if err != nil {
			return run.Result{}, err
		}
		fold.Add(event)
		if refused != nil {
			continue
		}
		if refused = yield(event); refused != nil {
			cancel(run.ErrClientGone)
		}
	}
	return fold.Result(), refused
}

// Runs lists the runs of this state directory.
func (l *local) Runs(ctx context.Context, f job.Filter) (rest.RunPage, error) {
	list, next, err := l.runtime.Manager.List(ctx, f)
	return rest.RunPage{Runs: append([]run.Summary{}, list...), Next: next}, err
}

// Run yields one run, with its result once it has ended.
func (l *local) Run(ctx context.Context, id string) (rest.RunDocument, error) {
	summary, err := l.runtime.Manager.Get(ctx, id)
	if err != nil {
		return rest.RunDocument{}, err
	}
	document := rest.RunDocument{Summary: summary}
	if summary.State.Terminal() {
		result, err := l.runtime.Manager.Result(ctx, id)
		if err != nil {
			return rest.RunDocument{}, err
		}
		document.Result = &result
	}
	return document, nil
}

// Cancel ends a run of this process, of which there is none; it says what
// became of others.
func (l *local) Cancel(ctx context.Context, id string) (rest.CancelDocument, error) {
	outcome, err := l.runtime.Manager.Cancel(ctx, id, run.ErrCancelled)
	if err != nil {
		return rest.CancelDocument{}, err
	}
	summary, err := l.runtime.Manager.Get(ctx, id)
	return rest.CancelDocument{RunID: id, Outcome: outcome, State: summary.State}, err
}

// Frames gives a run's events to yield, also those of a process that still has it.
func (l *local) Frames(ctx context.Context, id string, after int64, yield func(run.Event) error) error {
	for event, err := range l.runtime.Manager.Watch(ctx, id, after) {
		if err == nil {
			err = yield(event)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Artifacts lists what scripts left in this state directory.
func (l *local) Artifacts(ctx context.Context, f artifacts.Filter) (rest.ArtifactPage, error) {
	list, next, err := l.runtime.Artifacts.List(ctx, f)
	page := rest.ArtifactPage{Artifacts: []rest.ArtifactDocument{}, Next: next}
	for _, found := range list {
		d := rest.ArtifactDocument{Artifact: found.Ref(), Title: found.Title, Run: found.Run, Session: found.Session, CreatedAt: found.CreatedAt}
		if !found.ExpiresAt.IsZero() {
			d.ExpiresAt = &found.ExpiresAt
		}
		page.Artifacts = append(page.Artifacts, d)
	}
	return page, err
}

// Artifact opens an artifact's bytes.
func (l *local) Artifact(ctx context.Context, id string) (run.Artifact, io.ReadCloser, error) {
	found, file, err := l.runtime.Artifacts.OpenBlob(ctx, id)
	if err != nil {
		return run.Artifact{}, nil, err
	}
	return found.Ref(), file, nil
}
