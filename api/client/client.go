// Package client speaks to a daemon's HTTP surface. The command line uses it;
// its errors are those that the daemon sent, with their classes.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/api/problem"
	"mcpx/orchestrator/run"
)

// Client is safe for concurrent use.
type Client struct {
	endpoint string
	base     string // URL before the path
	token    string
	http     *http.Client
}

const dialTimeout = 10 * time.Second

// New makes a client of the daemon at endpoint: unix:///path, http://host:port
// or https://host:port. It does not connect yet. token may be empty.
func New(endpoint, token string) (*Client, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, badEndpoint(endpoint, "it is no URL")
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{DialContext: dialer.DialContext, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute}
	c := &Client{endpoint: endpoint, token: token, http: &http.Client{
		Transport: transport,
		// A token goes to the daemon that it was given for, and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	switch u.Scheme {
	case "unix":
		if !filepath.IsAbs(u.Path) || u.Host != "" {
			return nil, badEndpoint(endpoint, "a unix endpoint has an absolute path, unix:///run/mcpx/mcpx.sock")
		}
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", u.Path)
		}
		c.base = "http://localhost"
	case "http", "https":
		if u.Host == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil {
			return nil, badEndpoint(endpoint, "it has to be scheme, host and port only")
		}
		c.base = u.Scheme + "://" + u.Host
	case "ssh":
		return nil, &run.Error{Code: run.CodeUnsupportedOption, Class: errdefs.ErrNotImplemented, Field: "endpoint",
			Message: "ssh endpoints are not built yet", Hint: "forward the socket: ssh -L /tmp/mcpx.sock:/run/mcpx/mcpx.sock HOST, then unix:///tmp/mcpx.sock"}
	default:
		return nil, badEndpoint(endpoint, "known are unix://, http:// and https://")
	}
	return c, nil
}

func badEndpoint(endpoint, why string) error {
	return &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: "endpoint",
		Message: fmt.Sprintf("%q is not an endpoint: %s", endpoint, why)}
}

// Endpoint is where the daemon is.
func (c *Client) Endpoint() string { return c.endpoint }

// Close closes connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call is one request.
type call struct {
	method string
	path   string // below base, escaped
	query  url.Values
	accept string
	media  string // of body
	body   io.Reader
}

// send sends a request and turns every answer but a 2xx into an error.
func (c *Client) send(ctx context.Context, what call) (*http.Response, error) {
	address := c.base + what.path
	if len(what.query) > 0 {
		address += "?" + what.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, what.method, address, what.body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", what.method, what.path, err)
	}
	for name, value := range map[string]string{"Accept": what.accept, "Content-Type": what.media} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	return nil, refusal(res)
}

// maxProblem bounds what is read of an error's answer.
const maxProblem = 1 << 20

func refusal(res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	if err != nil {
		body = nil // the status still says something
	}
	return problem.Parse(res.StatusCode, res.Header.Get("Content-Type"), body)
}

// unreachable tells a daemon that is not there from a caller that gave up.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err // the rest names a made-up URL
	}
	return &run.Error{Code: problem.CodeDaemonUnavailable, Class: errdefs.ErrUnavailable,
		Message: fmt.Sprintf("no daemon answers at %s: %v", c.endpoint, err), Hint: "start one with `mcpx serve`"}
}

// fetch sends a request and decodes the answer's document into v, nil for none.
func (c *Client) fetch(ctx context.Context, what call, v any) error {
	what.accept = "application/json"
	res, err := c.send(ctx, what)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if v == nil {
		return nil
	}
	if err := json.NewDecoder(res.Body).Decode(v); err != nil {
		return c.broken(ctx, what, err)
	}
	return nil
}

// broken is an answer that stopped, or is not what it should be.
func (c *Client) broken(ctx context.Context, what call, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return &run.Error{Code: problem.CodeDaemonUnavailable, Class: errdefs.ErrUnavailable,
		Message: fmt.Sprintf("the answer of %s to %s %s is not whole: %v", c.endpoint, what.method, what.path, err)}
}

// jsonBody makes a request's body of v.
func jsonBody(v any) (io.Reader, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("request body: %w", err)
	}
	return bytes.NewReader(body), nil
}
