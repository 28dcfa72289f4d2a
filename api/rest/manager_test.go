package rest_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/api/client"
	"mcpx/api/rest"
	"mcpx/artifacts"
	"mcpx/orchestrator/job"
	"mcpx/orchestrator/job/sqlite"
	"mcpx/orchestrator/run"
)

// runner does what a request's source says, without containers, behind the
// real job manager.
type runner struct{}

type plan struct{ req run.Request }

func (p plan) Facts() run.Summary { return run.Summary{Label: p.req.Options.Label, Runtime: "bash"} }

func (runner) Plan(_ context.Context, req run.Request, _ run.Caller) (job.Plan, error) {
	if req.Source == "denied" {
		return nil, &run.Error{Code: run.CodeDenied, Message: "no rule grants it", Class: errdefs.ErrPermissionDenied}
	}
	return plan{req}, nil
}

func (runner) Run(ctx context.Context, id string, p job.Plan, emit func(string, any) error) {
	emit(run.EventStart, &run.StartFrame{RunID: id}) //nolint:errcheck // the log is the test's
	script := sayHello
	if p.(plan).req.Source == "wait" {
		script = waitForCancel
	}
	script(ctx, p.(plan).req, func(kind string, payload any) {
		if end, ok := payload.(*run.End); ok {
			end.RunID = id
		}
		emit(kind, payload) //nolint:errcheck // as above
	})
}

// withManager puts the real job manager behind a daemon.
func withManager(t *testing.T) func(*rest.Config) {
	t.Helper()
	dir := t.TempDir()
	store, err := sqlite.Open(filepath.Join(dir, "mcpx.db"))
	require.NoError(t, err)
	m, err := job.New(job.Config{Runner: runner{}, Store: store, LogDir: filepath.Join(dir, "logs"), Owner: "me",
		Slots: 1, Queue: 1, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, m.Close(context.WithoutCancel(t.Context())))
		require.NoError(t, store.Close())
	})
	return func(c *rest.Config) { c.Jobs, c.Runs = m, m }
}

func clientOf(t *testing.T, d *daemon) *client.Client {
	t.Helper()
	c, err := client.New("unix://"+d.socket, "")
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestClientAndManagerTogether(t *testing.T) {
	d := start(t, newJobs(), withManager(t))
	c := clientOf(t, d)
	var live []int64
	result, err := c.Exec(t.Context(), run.Request{Source: "hello"}, func(e run.Event) error {
		live = append(live, e.Seq)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, run.Exited, result.State)
	require.Equal(t, "hello\n", result.Stdout)
	var again []int64
	require.NoError(t, c.Frames(t.Context(), result.RunID, 0, func(e run.Event) error {
		again = append(again, e.Seq)
		return nil
	}))
	require.Equal(t, live, again)
	doc, err := c.Run(t.Context(), result.RunID)
	require.NoError(t, err)
	require.Equal(t, result.Stdout, doc.Result.Stdout)
	page, err := c.Runs(t.Context(), job.Filter{States: []run.State{run.Exited}})
	require.NoError(t, err)
	require.Len(t, page.Runs, 1)
	cancelled, err := c.Cancel(t.Context(), result.RunID)
	require.NoError(t, err)
	require.Equal(t, job.AlreadyFinished, cancelled.Outcome)
	_, err = c.Run(t.Context(), "nope")
	require.ErrorIs(t, err, errdefs.ErrNotFound)
	_, err = c.Exec(t.Context(), run.Request{Source: "denied"}, nil)
	require.ErrorIs(t, err, errdefs.ErrPermissionDenied)
}

func TestClientGivesUpAndTheRealRunEnds(t *testing.T) {
	c := clientOf(t, start(t, newJobs(), withManager(t)))
	ctx, giveUp := context.WithCancel(t.Context())
	result, err := c.Exec(ctx, run.Request{Source: "wait"}, func(e run.Event) error {
		if e.Type == run.EventStdout {
			giveUp()
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, run.Cancelled, result.State)
	require.Equal(t, run.ErrCancelled.Error(), result.Error.Message)
}

func TestClientMovesArtifacts(t *testing.T) {
	c := clientOf(t, start(t, newJobs(), withStore(t, artifacts.Options{})))
	data := strings.Repeat("bytes\x00", 100_000)
	a, err := c.Upload(t.Context(), artifacts.Meta{Name: "x y.bin", MIME: "application/x-thing", Session: "s", TTL: time.Hour}, strings.NewReader(data))
	require.NoError(t, err)
	require.Equal(t, sum(data), a.SHA256)
	require.Equal(t, "x-y.bin", a.Name)
	page, err := c.Artifacts(t.Context(), artifacts.Filter{Session: "s", Limit: 5})
	require.NoError(t, err)
	require.Len(t, page.Artifacts, 1)
	require.Equal(t, a.Artifact, page.Artifacts[0].Artifact)
	content, err := c.Artifact(t.Context(), a.ID)
	require.NoError(t, err)
	got, err := io.ReadAll(content)
	require.NoError(t, err)
	require.NoError(t, content.Close())
	require.Equal(t, a.SHA256, sum(string(got)))
	require.Equal(t, a.SHA256, content.SHA256)
	require.Equal(t, a.Size, content.Size)
	require.Equal(t, "application/x-thing", content.MIME)
	require.NoError(t, c.DeleteArtifact(t.Context(), a.ID))
	_, err = c.Artifact(t.Context(), a.ID)
	require.ErrorIs(t, err, errdefs.ErrNotFound)
	require.ErrorIs(t, c.DeleteArtifact(t.Context(), a.ID), errdefs.ErrNotFound)
}

func TestClientAsksAboutPolicies(t *testing.T) {
	d := start(t, newJobs())
	c := clientOf(t, d)
	list, err := c.Images(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, list)
	rules, err := c.Policies(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, rules.Rules)
	e, err := c.Explain(t.Context(), run.Request{Source: "#!/bin/bash\n"})
	require.NoError(t, err)
	require.Equal(t, "bash", e.Interpreter)
	require.NoError(t, c.Ready(t.Context()))
	away := error(errdefs.ErrUnavailable)
	d.ready.Store(&away)
	require.ErrorIs(t, c.Ready(t.Context()), errdefs.ErrUnavailable)
	require.NoError(t, c.Health(t.Context()))
}

func TestFullQueueIs429(t *testing.T) {
	d := start(t, newJobs(), withManager(t))
	c := clientOf(t, d)
	for range 2 { // one runs, one waits
		_, err := c.Start(t.Context(), run.Request{Source: "wait"}, time.Minute)
		require.NoError(t, err)
	}
	got := d.exec(`{"source":"wait"}`)
	require.Equal(t, http.StatusTooManyRequests, got.problem(t).Status)
	require.Equal(t, "1", got.header.Get("Retry-After"))
	var page rest.RunPage
	require.NoError(t, json.Unmarshal([]byte(d.do(http.MethodGet, "/v1/runs", "").body), &page))
	require.Len(t, page.Runs, 2)
	for _, one := range page.Runs {
		_, err := c.Cancel(t.Context(), one.RunID)
		require.NoError(t, err)
	}
}
