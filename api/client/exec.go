package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"mcpx/orchestrator/run"
)

// How long Exec bothers with a run whose caller has given up.
const (
	cancelTimeout = 5 * time.Second  // for the daemon to take the request
	endTimeout    = 30 * time.Second // for the run to end
)

// headerRunID is where the daemon names the run.
const headerRunID = "Mcpx-Run-Id"

// Exec runs req and gives each event to yield as it happens; then it yields
// the run's result. An error of yield ends the run and is returned. When ctx
// ends, the run is cancelled and Exec still waits for its end, so that the
// result says what became of it.
func (c *Client) Exec(ctx context.Context, req run.Request, yield func(run.Event) error) (run.Result, error) {
	req.Options.Output, req.Options.Task = run.OutputStream, nil
	body, err := jsonBody(req)
	if err != nil {
		return run.Result{}, err
	}
	what := call{method: http.MethodPost, path: "/v1/exec", media: "application/json", accept: mediaNDJSON, body: body}
	conn, hangUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer hangUp(nil)
	// Until the daemon has named the run, hanging up is all that can be done.
	stop := context.AfterFunc(ctx, func() { hangUp(context.Cause(ctx)) })
	res, err := c.send(conn, what)
	if err != nil {
		stop()
		return run.Result{}, err
	}
	defer res.Body.Close()
	if !stop() {
		return run.Result{}, context.Cause(ctx)
	}
	defer c.cancelWhenDone(ctx, res.Header.Get(headerRunID), hangUp)()
	var fold run.Fold
	ended := false
	err = c.read(conn, what, res.Body, hangUp, func(e run.Event) error {
		fold.Add(e)
		ended = ended || e.Type == run.EventEnd
		return yield(e)
	})
	if err == nil && !ended {
		err = c.broken(conn, what, errors.New("it stops before the end frame"))
	}
	return fold.Result(), err
}

// cancelWhenDone cancels the run when ctx ends, and hangs up when that does
// not end it. The returned function ends the watch and waits for it.
func (c *Client) cancelWhenDone(ctx context.Context, id string, hangUp context.CancelCauseFunc) func() {
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer cancel()
		if _, err := c.Cancel(asking, id); err != nil {
			hangUp(fmt.Errorf("cancel run %s: %w", id, err))
			return
		}
		patience := time.NewTimer(endTimeout)
		defer patience.Stop()
		select {
		case <-over:
		case <-patience.C:
			hangUp(fmt.Errorf("run %s was cancelled and has not ended for %s", id, endTimeout))
		}
	})
	return func() {
		close(over)
		watch.Wait()
	}
}

// Start starts req as a task whose result is kept for ttl.
func (c *Client) Start(ctx context.Context, req run.Request, ttl time.Duration) (run.Summary, error) {
	req.Options.Task = &run.TaskOptions{TTL: ttl.Milliseconds()}
	body, err := jsonBody(req)
	if err != nil {
		return run.Summary{}, err
	}
	var summary run.Summary
	err = c.fetch(ctx, call{method: http.MethodPost, path: "/v1/exec", media: "application/json", body: body}, &summary)
	return summary, err
}
