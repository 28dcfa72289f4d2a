package rest_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/api/client"
	"mcpx/api/rest"
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
