package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"mcpx/api/rest"
	"mcpx/orchestrator/tool"
)

// Servers lists the MCP server that ns names, all when it is empty.
func (c *Client) Servers(ctx context.Context, ns string) ([]tool.Server, error) {
	var list rest.ToolList
	err := c.fetch(ctx, call{method: http.MethodGet, path: "/v1/tools", query: queryOf(map[string]string{"ns": ns})}, &list)
	return list.Servers, err
}

// Search finds tools by words, the best first.
func (c *Client) Search(ctx context.Context, words string, limit int) ([]tool.Hit, error) {
	query := queryOf(map[string]string{"q": words})
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	var list rest.HitList
	err := c.fetch(ctx, call{method: http.MethodGet, path: "/v1/tools/search", query: query}, &list)
	return list.Hits, err
}

// Types declares a namespace in a language ("" is TypeScript), all its
// functions unless some are named.
func (c *Client) Types(ctx context.Context, ns, lang string, functions ...string) (string, error) {
	query := queryOf(map[string]string{"lang": lang})
	if len(functions) > 0 {
		query["fn"] = functions
	}
	what := call{method: http.MethodGet, path: "/v1/types/" + url.PathEscape(ns), query: query}
	res, err := c.send(ctx, what)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return "", c.broken(ctx, what, err)
	}
	return string(text), nil
}

// Call makes one call. Whose it is, the daemon says; its progress is not told.
func (c *Client) Call(ctx context.Context, t tool.Call) (tool.Result, error) {
	arguments := t.Arguments
	if len(bytes.TrimSpace(arguments)) == 0 {
		arguments = []byte("{}")
	}
	var document rest.CallDocument
	err := c.fetch(ctx, call{
		method: http.MethodPost, path: fmt.Sprintf("/v1/call/%s/%s", url.PathEscape(t.Server), url.PathEscape(t.Tool)),
		query: queryOf(map[string]string{"session": t.Session}), media: "application/json", body: bytes.NewReader(arguments),
	}, &document)
	return tool.Result{Raw: document.Raw, IsError: document.IsError, Note: document.Note}, err
}

// Refresh asks MCP servers, all when none is named, what tools they have.
func (c *Client) Refresh(ctx context.Context, servers ...string) error {
	query := url.Values{}
	if len(servers) > 0 {
		query["server"] = servers
	}
	return c.fetch(ctx, call{method: http.MethodPost, path: "/v1/tools/refresh", query: query}, nil)
}
