package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mcpx/api/auth"
	"mcpx/api/mcp"
	"mcpx/api/problem"
	"mcpx/artifacts"
	index "mcpx/artifacts/sqlite"
	"mcpx/orchestrator/job"
	"mcpx/orchestrator/job/sqlite"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

func TestMain(m *testing.M) {
	// gorm's statement cache starts a goroutine for each database and never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

// Revisions that clients ask for; the first has no sessions.
var revisions = []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"}

type emitter func(kind string, payload any)

// scripted is a job.Runner whose scripts are functions, by their source.
type scripted struct {
	mu     sync.Mutex
	does   map[string]func(ctx context.Context, emit emitter)
	seen   []run.Request
	by     []run.Caller
	causes chan error // why a script's context ended
}

type plan struct{ req run.Request }

func (p plan) Facts() run.Summary {
	return run.Summary{Runtime: "bash", Session: p.req.Options.Session}
}

func (s *scripted) Plan(_ context.Context, req run.Request, by run.Caller) (job.Plan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.by = append(s.seen, req), append(s.by, by)
	if req.Source == "denied" {
		return nil, &run.Error{Code: run.CodeDenied, Message: "no rule grants it", Hint: "ask for less", Class: errdefs.ErrPermissionDenied}
	}
	return plan{req}, nil
}

func (s *scripted) Run(ctx context.Context, id string, p job.Plan, record func(string, any) error) {
	emit := func(kind string, payload any) {
		if end, ok := payload.(*run.End); ok {
			end.RunID = id
		}
		if err := record(kind, payload); err != nil {
			panic(err)
		}
	}
	emit(run.EventStart, &run.StartFrame{RunID: id, Runtime: "bash", Interpreter: "/bin/bash", Image: "i", Policy: "p"})
	req := p.(plan).req
	does := s.does[req.Source+req.File]
	if does == nil {
		does = printing("hello\n")
	}
	does(ctx, emit)
}

func exits(emit emitter, code int) {
	state := &run.End{State: run.Exited, ExitCode: &code, DurationMs: 12}
	if code != 0 {
		emit(run.EventError, &run.Error{Code: run.CodeExitStatus, Message: fmt.Sprintf("exit code %d", code)})
	}
	emit(run.EventEnd, state)
}

func printing(text string) func(context.Context, emitter) {
	return func(_ context.Context, emit emitter) {
		emit(run.EventStdout, &run.OutputFrame{Text: text})
		exits(emit, 0)
	}
}

// untilEnded runs until its context ends, and tells why it did.
func (s *scripted) untilEnded(ctx context.Context, emit emitter) {
	emit(run.EventStdout, &run.OutputFrame{Text: "begun\n"})
	<-ctx.Done()
	emit(run.EventError, &run.Error{Code: run.CodeCancelled, Message: context.Cause(ctx).Error()})
	emit(run.EventEnd, &run.End{State: run.Cancelled})
	s.causes <- context.Cause(ctx)
}

// shelf are the tools of two servers.
type shelf struct {
	servers []tool.Server
	calls   func(context.Context, tool.Call) (tool.Result, error)
	mu      sync.Mutex
	seen    []tool.Call
}

func newShelf() *shelf {
	s := &shelf{}
	for _, server := range []string{"browser", "files"} {
		one := tool.Server{Name: server + "-mcp", Namespace: server, Description: "Works with " + server + ". Long story."}
		for _, fn := range []string{"open", "close"} {
			one.Tools = append(one.Tools, tool.Tool{Server: one.Name, Namespace: server, Name: fn, Function: fn,
				Description: "To " + fn + " a thing of " + server + ". More words.", InputSchema: json.RawMessage(`{"type":"object"}`)})
		}
		s.servers = append(s.servers, one)
	}
	return s
}

func (s *shelf) Servers(_ context.Context, ns string) ([]tool.Server, error) {
	if ns == "" {
		return s.servers, nil
	}
	for _, one := range s.servers {
		if one.Namespace == ns {
			return []tool.Server{one}, nil
		}
	}
	return nil, &run.Error{Code: run.CodeUnknownServer, Message: fmt.Sprintf("no MCP server %q", ns), Hint: "there are browser, files", Class: errdefs.ErrNotFound}
}

func (s *shelf) Search(_ context.Context, query string, limit int) ([]tool.Hit, error) {
	return tool.Search(s.servers, query, limit), nil
}

func (s *shelf) Types(ctx context.Context, ns, lang string, functions ...string) (string, error) {
	if _, err := s.Servers(ctx, ns); err != nil {
		return "", err
	}
	return fmt.Sprintf("declarations of %s in %q: %v", ns, lang, functions), nil
}

func (s *shelf) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	s.mu.Lock()
	s.seen = append(s.seen, c)
	s.mu.Unlock()
	return s.calls(ctx, c)
}

func answers(raw string) func(context.Context, tool.Call) (tool.Result, error) {
	var head struct {
		IsError bool `json:"isError"`
	}
	if err := json.Unmarshal([]byte(raw), &head); err != nil {
		panic(err)
	}
	return func(context.Context, tool.Call) (tool.Result, error) {
		return tool.Result{Raw: json.RawMessage(raw), IsError: head.IsError}, nil
	}
}

// world is a Server with everything below it, behind HTTP.
type world struct {
	t      *testing.T
	runner *scripted
	shelf  *shelf
	jobs   *job.Manager
	store  *artifacts.Store
	config mcp.Config
	server *mcp.Server
	http   *httptest.Server
}

// The tests' callers say who they are; package rest asks the gate.
const headerPrincipal = "Principal"

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, shelf: newShelf(), runner: &scripted{does: map[string]func(context.Context, emitter){}, causes: make(chan error, 1)}}
	dir := t.TempDir()
	rows, err := sqlite.Open(filepath.Join(dir, "mcpx.db"))
	require.NoError(t, err)
	registry, err := index.Open(filepath.Join(dir, "index.db"))
	require.NoError(t, err)
	w.store, err = artifacts.Open(filepath.Join(dir, "artifacts"), registry, artifacts.Options{})
	require.NoError(t, err)
	w.jobs, err = job.New(job.Config{Runner: w.runner, Store: rows, LogDir: filepath.Join(dir, "logs"), Owner: "me", Slots: 4, Queue: 4, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	w.config = mcp.Config{Runs: mcp.Local(w.jobs, log), Tools: w.shelf, Artifacts: mcp.Stored(w.store), Log: log, Version: "v1"}
	w.server = mcp.New(w.config)
	w.http = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(func() {
		w.http.CloseClientConnections()
		w.http.Close()
		w.server.Close()
		require.NoError(t, w.jobs.Close(context.WithoutCancel(t.Context())))
		require.NoError(t, rows.Close())
		require.NoError(t, registry.Close())
	})
	return w
}

func (w *world) serve(out http.ResponseWriter, r *http.Request) {
	by := run.Caller{Principal: auth.PrincipalLocal, Trace: r.Header.Get("Traceparent")}
	if name := r.Header.Get(headerPrincipal); name != "" {
		by.Principal = name
	}
	if err := w.server.ServeMCP(out, r, by); err != nil {
		problem.Write(out, problem.New(err))
	}
}

// connect makes a client of the SDK that speaks a revision.
func (w *world) connect(revision string, options ...func(*sdk.ClientOptions, http.Header)) *sdk.ClientSession {
	w.t.Helper()
	o, header := &sdk.ClientOptions{}, http.Header{}
	for _, edit := range options {
		edit(o, header)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o)
	session, err := client.Connect(w.t.Context(), &sdk.StreamableClientTransport{
		Endpoint: w.http.URL, HTTPClient: &http.Client{Transport: adding{transport, header}}, MaxRetries: -1,
	}, &sdk.ClientSessionOptions{ProtocolVersion: revision})
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		session.Close() //nolint:errcheck // the server may be gone
		transport.CloseIdleConnections()
	})
	return session
}

type adding struct {
	http.RoundTripper
	header http.Header
}

func (a adding) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range a.header {
		r.Header[name] = values
	}
	return a.RoundTripper.RoundTrip(r)
}

func call(t *testing.T, session *sdk.ClientSession, name string, args any) *sdk.CallToolResult {
	t.Helper()
	result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	require.NoError(t, err)
	return result
}

// words is the text of a result.
func words(t *testing.T, r *sdk.CallToolResult) string {
	t.Helper()
	i := slices.IndexFunc(r.Content, func(c sdk.Content) bool { _, ok := c.(*sdk.TextContent); return ok })
	require.GreaterOrEqual(t, i, 0, "no text in %v", r.Content)
	return r.Content[i].(*sdk.TextContent).Text
}

func structured(t *testing.T, r *sdk.CallToolResult, v any) {
	t.Helper()
	data, err := json.Marshal(r.StructuredContent)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, v))
}

type object = map[string]any
