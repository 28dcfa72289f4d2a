package client

import (
	"context"
	"net/http"

	"mcpx/api/rest"
	"mcpx/orchestrator/run"
	"mcpx/policies"
)

// Images lists the images that the daemon's policies name.
func (c *Client) Images(ctx context.Context) ([]rest.ImageDocument, error) {
	var list rest.ImageList
	err := c.fetch(ctx, call{method: http.MethodGet, path: "/v1/images"}, &list)
	return list.Images, err
}

// Policies yields the policies that the daemon has in force.
func (c *Client) Policies(ctx context.Context) (rest.PolicyDocument, error) {
	var document rest.PolicyDocument
	err := c.fetch(ctx, call{method: http.MethodGet, path: "/v1/policies"}, &document)
	return document, err
}

// Explain tells what would become of a request, and runs nothing.
func (c *Client) Explain(ctx context.Context, req run.Request) (policies.Explanation, error) {
	body, err := jsonBody(req)
	if err != nil {
		return policies.Explanation{}, err
	}
	var e policies.Explanation
	err = c.fetch(ctx, call{method: http.MethodPost, path: "/v1/policies/explain", media: "application/json", body: body}, &e)
	return e, err
}
