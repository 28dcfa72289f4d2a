package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/api/rest"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

// toolbox is one server with two tools.
type toolbox struct {
	mu        sync.Mutex
	calls     []tool.Call
	refreshed [][]string
	waits     bool
	ended     chan error
}

func newToolbox() *toolbox { return &toolbox{ended: make(chan error, 1)} }

func (*toolbox) servers() []tool.Server {
	yes := true
	return []tool.Server{
		{Name: "my-files", Namespace: "my_files", Description: "files", Tools: []tool.Tool{
			{Server: "my-files", Namespace: "my_files", Name: "read-file", Function: "read_file", Description: "reads",
				InputSchema: json.RawMessage(`{"type":"object"}`), ReadOnly: &yes},
			{Server: "my-files", Namespace: "my_files", Name: "write", Function: "write"},
		}},
		{Name: "broken", Namespace: "broken", Err: "does not start"},
	}
}

func (b *toolbox) Servers(_ context.Context, ns string) ([]tool.Server, error) {
	switch ns {
	case "":
		return b.servers(), nil
	case "my_files":
		return b.servers()[:1], nil
	}
	return nil, &run.Error{Code: run.CodeUnknownServer, Class: errdefs.ErrNotFound, Field: "server", Message: fmt.Sprintf("no MCP server %q is configured", ns)}
}

func (b *toolbox) Search(_ context.Context, query string, limit int) ([]tool.Hit, error) {
	return tool.Search(b.servers(), query, limit), nil
}

func (b *toolbox) Types(ctx context.Context, ns, lang string, functions ...string) (string, error) {
	if _, err := b.Servers(ctx, ns); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %s %q\n", ns, lang, functions), nil
}

func (b *toolbox) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	b.mu.Lock()
	b.calls = append(b.calls, c)
	b.mu.Unlock()
	switch {
	case b.waits:
		<-ctx.Done()
		b.ended <- context.Cause(ctx)
		return tool.Result{}, context.Cause(ctx)
	case c.Tool == "write":
		return tool.Result{Raw: json.RawMessage(`{"content":[{"type":"text","text":"disk full"}],"isError":true}`), IsError: true, Note: "it changed"}, nil
	case c.Tool == "nope":
		return tool.Result{}, &run.Error{Code: run.CodeOutcomeUnknown, Message: "went away", Class: errdefs.ErrUnavailable}
	}
	return tool.Result{Raw: json.RawMessage(`{"content":[{"type":"text","text":"<hi>"}]}`)}, nil
}

func (b *toolbox) Refresh(_ context.Context, servers ...string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refreshed = append(b.refreshed, servers)
	return nil
}

func with(b *toolbox) func(*rest.Config) { return func(c *rest.Config) { c.Tools = b } }

func TestToolsAreListedAndFound(t *testing.T) {
	d := start(t, newJobs(), with(newToolbox()))
	var list rest.ToolList
	require.NoError(t, json.Unmarshal([]byte(d.do(http.MethodGet, "/v1/tools", "").body), &list))
	require.Len(t, list.Servers, 2)
	require.Equal(t, "read-file", list.Servers[0].Tools[0].Name)
	require.NotNil(t, list.Servers[1].Tools)
	list = rest.ToolList{}
	require.NoError(t, json.Unmarshal([]byte(d.do(http.MethodGet, "/v1/tools?ns=my_files", "").body), &list))
	require.Len(t, list.Servers, 1)
	require.Equal(t, run.CodeUnknownServer, d.do(http.MethodGet, "/v1/tools?ns=nope", "").problem(t).Code)

	var hits rest.HitList
	require.NoError(t, json.Unmarshal([]byte(d.do(http.MethodGet, "/v1/tools/search?q=read&limit=1", "").body), &hits))
	require.Equal(t, "read_file", hits.Hits[0].Tool.Function)
	require.JSONEq(t, `{"hits":[]}`, d.do(http.MethodGet, "/v1/tools/search?q=zzz", "").body)
	require.Equal(t, "limit", d.do(http.MethodGet, "/v1/tools/search?q=a&limit=x", "").problem(t).Field)
}

func TestTypesArePlainText(t *testing.T) {
	d := start(t, newJobs(), with(newToolbox()))
	got := d.do(http.MethodGet, "/v1/types/my_files?lang=python&fn=a&fn=b", "")
	require.Equal(t, "my_files python [\"a\" \"b\"]\n", got.body)
	require.Equal(t, "text/plain; charset=utf-8", got.header.Get("Content-Type"))
	require.Equal(t, http.StatusNotFound, d.do(http.MethodGet, "/v1/types/nope", "").problem(t).Status)
}

func TestCallTool(t *testing.T) {
	b := newToolbox()
	d := start(t, newJobs(), with(b))
	json := []string{"Content-Type", "application/json"}
	got := d.do(http.MethodPost, "/v1/call/my-files/read-file?session=s", `{"path": "a<b"}`, json...)
	require.JSONEq(t, `{"value":"<hi>","raw":{"content":[{"type":"text","text":"<hi>"}]}}`, got.body)
	require.Contains(t, got.body, "<hi>", "nothing here is embedded in HTML")
	require.Equal(t, "my-files", b.calls[0].Server)
	require.Equal(t, "read-file", b.calls[0].Tool)
	require.Equal(t, "s", b.calls[0].Session)
	require.Equal(t, "local", b.calls[0].Principal)
	require.JSONEq(t, `{"path":"a<b"}`, string(b.calls[0].Arguments))

	got = d.do(http.MethodPost, "/v1/call/my-files/write", `{}`, json...)
	require.Equal(t, http.StatusOK, got.status, "the tool has answered")
	require.JSONEq(t, `{"isError":true,"text":"disk full","note":"it changed","raw":{"content":[{"type":"text","text":"disk full"}],"isError":true}}`, got.body)

	p := d.do(http.MethodPost, "/v1/call/my-files/nope", `{}`, json...).problem(t)
	require.Equal(t, http.StatusBadGateway, p.Status)
	for _, body := range []string{`[]`, `"x"`, `null`, `{"a":1,"a":2}`, `{`, ``} {
		p := d.do(http.MethodPost, "/v1/call/my-files/write", body, json...).problem(t)
		require.Equal(t, run.CodeInvalidBody, p.Code, body)
	}
	require.Len(t, b.calls, 3)
	res := d.overTCP(t.Context(), http.MethodPost, "/v1/call/my-files/read-file", strings.NewReader("{}"), "Authorization", "Bearer "+token, "Content-Type", "application/json")
	require.Equal(t, http.StatusOK, d.read(res).status)
	require.Equal(t, "token", b.calls[3].Principal)
}

func TestCallersDisconnectCancelsTheCall(t *testing.T) {
	b := newToolbox()
	b.waits = true
	d := start(t, newJobs(), with(b))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v1/call/a/b", strings.NewReader(`{}`))
		if err != nil {
			return
		}
		req.Header.Set("Content-Type", "application/json")
		if res, err := d.unix.Do(req); err == nil {
			res.Body.Close()
		}
	}()
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.calls) == 1
	}, 10*time.Second, time.Millisecond)
	cancel()
	require.Error(t, <-b.ended)
}

func TestRefreshNamesServers(t *testing.T) {
	b := newToolbox()
	d := start(t, newJobs(), with(b))
	require.Equal(t, http.StatusOK, d.do(http.MethodPost, "/v1/tools/refresh?server=a&server=b", "").status)
	require.Equal(t, http.StatusOK, d.do(http.MethodPost, "/v1/tools/refresh", "").status)
	require.Equal(t, []string{"a", "b"}, b.refreshed[0])
	require.Empty(t, b.refreshed[1])
}

// door is an MCP surface that tells what it gets.
type door struct{}

func (door) ServeMCP(w http.ResponseWriter, r *http.Request, by run.Caller) error {
	if r.URL.Query().Get("x") != "" {
		return errdefs.ErrInternal
	}
	if r.Method == http.MethodGet {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush() //nolint:errcheck // the test reads
		<-r.Context().Done()
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s %s %s", r.Method, by.Principal, body)
	return err
}

func TestMCPIsBehindTheGate(t *testing.T) {
	d := start(t, newJobs())
	require.Equal(t, "POST local hello", d.do(http.MethodPost, "/mcp", "hello").body)
	require.Equal(t, "DELETE local ", d.do(http.MethodDelete, "/mcp", "").body)
	res := d.overTCP(t.Context(), http.MethodPost, "/mcp", strings.NewReader("x"), "Authorization", "Bearer "+token)
	require.Equal(t, "POST token x", d.read(res).body)
	for _, method := range []string{http.MethodPut, http.MethodOptions, http.MethodHead} {
		require.Equal(t, http.StatusMethodNotAllowed, d.do(method, "/mcp", "").status, method)
	}
	require.Equal(t, run.CodeInvalidRequest, d.do(http.MethodPost, "/mcp?x=1", "").problem(t).Code)
	res = d.overTCP(t.Context(), http.MethodPost, "/mcp", io.LimitReader(zeros{}, 33<<20), "Authorization", "Bearer "+token)
	require.Equal(t, http.StatusRequestEntityTooLarge, d.read(res).status)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// Somebody who listens for what may happen must not hold up the daemon's end.
func TestListeningMCPClientsDoNotHoldUpTheEnd(t *testing.T) {
	d := start(t, newJobs(), func(c *rest.Config) { c.DrainTimeout = 10 * time.Second })
	res := d.open(t.Context(), http.MethodGet, "/mcp", nil)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.NoError(t, d.stop())
	_, err := io.ReadAll(res.Body)
	require.NoError(t, err, "the stream ends as a stream does")
	require.NoError(t, res.Body.Close())
}

func TestNamesInPathsAreUnescaped(t *testing.T) {
	b := newToolbox()
	d := start(t, newJobs(), with(b))
	got := d.do(http.MethodPost, "/v1/call/"+url.PathEscape("a b")+"/"+url.PathEscape("ü?#"), `{}`, "Content-Type", "application/json")
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, "a b", b.calls[0].Server)
	require.Equal(t, "ü?#", b.calls[0].Tool)
}
