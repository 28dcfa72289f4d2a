package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"mcpx/api/rest"
	"mcpx/orchestrator/job"
)

// Runs lists a page of runs, the newest first. Filter's Principal is not sent:
// whom a caller is, the daemon says.
func (c *Client) Runs(ctx context.Context, f job.Filter) (rest.RunPage, error) {
	query := queryOf(map[string]string{"session": f.Session, "task_handle": f.TaskHandle, "label": f.Label, "after": f.After})
	for _, state := range f.States {
		query.Add("state", string(state))
	}
	if f.Limit > 0 {
		query.Set("limit", strconv.Itoa(f.Limit))
	}
	var page rest.RunPage
	err := c.fetch(ctx, call{method: http.MethodGet, path: "/v1/runs", query: query}, &page)
	return page, err
}

// Run yields one run, with its result once it has ended.
func (c *Client) Run(ctx context.Context, id string) (rest.RunDocument, error) {
	var doc rest.RunDocument
	err := c.fetch(ctx, call{method: http.MethodGet, path: "/v1/runs/" + url.PathEscape(id)}, &doc)
	return doc, err
}

// Cancel ends a run; it does not wait for the end.
func (c *Client) Cancel(ctx context.Context, id string) (rest.CancelDocument, error) {
	var doc rest.CancelDocument
	err := c.fetch(ctx, call{method: http.MethodPost, path: "/v1/runs/" + url.PathEscape(id) + "/cancel"}, &doc)
	return doc, err
}

// Health is nil when the daemon answers.
func (c *Client) Health(ctx context.Context) error {
	return c.fetch(ctx, call{method: http.MethodGet, path: "/healthz"}, nil)
}

// Ready is nil when the daemon could carry out a run now.
func (c *Client) Ready(ctx context.Context) error {
	return c.fetch(ctx, call{method: http.MethodGet, path: "/readyz"}, nil)
}
