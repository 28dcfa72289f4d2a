package mcp

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"

	"github.com/containerd/errdefs"

	"mcpx/api/auth"
	"mcpx/artifacts"
	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

// Jobs starts runs, tells of them and ends them (*job.Manager).
type Jobs interface {
	Submit(context.Context, run.Request, run.Caller) (id string, err error)
	Watch(ctx context.Context, id string, after int64) iter.Seq2[run.Event, error]
	Cancel(ctx context.Context, id string, cause error) (job.Outcome, error)
	Get(ctx context.Context, id string) (run.Summary, error)
	Result(ctx context.Context, id string) (run.Result, error)
}

var _ Jobs = (*job.Manager)(nil)

// Local carries runs out by this process's job manager.
func Local(jobs Jobs, log *slog.Logger) Runs { return local{jobs, log} }

type local struct {
	jobs Jobs
	log  *slog.Logger
}

// Exec is Submit and Watch. The log is read to its end whatever becomes of ctx.
func (l local) Exec(ctx context.Context, req run.Request, by run.Caller, yield func(run.Event) error) (run.Result, error) {
	id, err := l.jobs.Submit(ctx, req, by)
	if err != nil {
		return run.Result{}, err
	}
	whole := context.WithoutCancel(ctx)
	cancel := func(cause error) {
		if _, err := l.jobs.Cancel(whole, id, cause); err != nil {
			l.log.Warn("run of a caller who went away goes on", "run", id, "error", err)
		}
	}
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	var fold run.Fold
	var refused error
	for event, err := range l.jobs.Watch(whole, id, 0) {
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

// Result is the result of a run that the caller may know of.
func (l local) Result(ctx context.Context, id string, by run.Caller) (run.Result, error) {
	summary, err := l.jobs.Get(ctx, id)
	if err != nil {
		return run.Result{}, err
	}
	if !owns(by, summary.Principal) {
		return run.Result{}, notFound("run", id)
	}
	return l.jobs.Result(ctx, id)
}

// owns: the machine's own user, who owns the daemon, sees everybody's things.
func owns(by run.Caller, principal string) bool {
	return by.Principal == auth.PrincipalLocal || by.Principal == principal
}

func notFound(what, id string) error {
	return &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound, Message: fmt.Sprintf("no %s %q", what, id)}
}

// Stored keeps artifacts in this process's store.
func Stored(store *artifacts.Store) Artifacts { return stored{store} }

type stored struct{ store *artifacts.Store }

func (s stored) Artifact(ctx context.Context, id string, by run.Caller) (run.Artifact, io.ReadCloser, error) {
	found, file, err := s.store.OpenBlob(ctx, id)
	if err != nil {
		return run.Artifact{}, nil, err
	}
	if !owns(by, found.Principal) {
		file.Close()
		return run.Artifact{}, nil, notFound("artifact", id)
	}
	return found.Ref(), file, nil
}

func (s stored) Keep(ctx context.Context, meta artifacts.Meta, body io.Reader) (run.Artifact, error) {
	w, err := s.store.Create(ctx, meta)
	if err != nil {
		return run.Artifact{}, err
	}
	defer w.Abort()
	if _, err := io.Copy(w, body); err != nil {
		return run.Artifact{}, err
	}
	kept, err := w.Commit()
	return kept.Ref(), err
}
