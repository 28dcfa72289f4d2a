package orchestrator_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator"
	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
	"mcpx/policies"
)

// stock is a set of tools that answers by its own name.
type stock struct {
	called []tool.Call
	ended  []string
	audit  []orchestrator.AuditedCall
}

var destroys = true

func (s *stock) Servers(context.Context) []tool.Server {
	return []tool.Server{
		{Name: "web", Namespace: "web", Tools: []tool.Tool{
			{Server: "web", Name: "get", Namespace: "web", Function: "get"},
			{Server: "web", Name: "wipe", Namespace: "web", Function: "wipe", Destructive: &destroys},
		}},
		{Name: "my-db", Namespace: "my_db", Tools: []tool.Tool{{Server: "my-db", Name: "query", Namespace: "my_db", Function: "query"}}},
	}
}

func (s *stock) Tool(ctx context.Context, server, name string) (tool.Tool, error) {
	for _, known := range s.Servers(ctx) {
		for _, t := range known.Tools {
			if (server == known.Name || server == known.Namespace) && name == t.Name {
				return t, nil
			}
		}
	}
	return tool.Tool{}, &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound, Message: "no tool " + name}
}

func (s *stock) Call(_ context.Context, c tool.Call) (tool.Result, error) {
	s.called = append(s.called, c)
	c.Progress(1, 2, "half")
	return tool.Result{Raw: json.RawMessage(`{"content":[{"type":"text","text":"secret ` + c.Tool + `"}]}`)}, nil
}

func (s *stock) EndRun(id string) { s.ended = append(s.ended, id) }

func (s *stock) RecordCall(_ context.Context, c orchestrator.AuditedCall) error {
	s.audit = append(s.audit, c)
	return nil
}

// calling is a script that makes one request after the other to its endpoint,
// by the socket that a container would have mounted.
func calling(t *testing.T, requests [][2]string, answers *[]string) func(context.Context, engine.Job, engine.IO) (engine.Exit, error) {
	return func(ctx context.Context, _ engine.Job, _ engine.IO) (engine.Exit, error) {
		dir := controlDir(ctx)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			link := filepath.Join(t.TempDir(), "l")
			if err := os.Symlink(dir, link); err != nil {
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(link, engine.SocketName))
		}}}
		for _, r := range requests {
			resp, err := client.Post("http://mcpx"+r[0], "application/json", strings.NewReader(r[1]))
			if err != nil {
				return engine.Exit{}, err
			}
			var text strings.Builder
			json.NewEncoder(&text).Encode(resp.StatusCode)
			var body any
			json.NewDecoder(resp.Body).Decode(&body)
			resp.Body.Close()
			json.NewEncoder(&text).Encode(body)
			*answers = append(*answers, strings.ReplaceAll(text.String(), "\n", " "))
		}
		return engine.Exit{}, nil
	}
}

type dirKey struct{}

func controlDir(ctx context.Context) string { return ctx.Value(dirKey{}).(string) }

func TestScriptCallsTools(t *testing.T) {
	tools := &stock{}
	var answers []string
	e := &scripted{}
	script := calling(t, [][2]string{
		{"/v1/call/web/get", `{"password":"hunter2"}`},
		{"/v1/call/web/get", `{ "password": "hunter2" }`},
		{"/v1/call/web/nosuch", `{}`},
		{"/v1/call/my_db/query", `{}`},
		{"/v1/emit", `{"n":1}`},
		{"/v1/log", `{"level":"warn","message":"careful"}`},
		{"/v1/result", `{"total":3}`},
		{"/v1/artifacts?name=a.json", `{"kept":true}`},
	}, &answers)
	e.run = func(ctx context.Context, job engine.Job, stdio engine.IO) (engine.Exit, error) {
		return script(context.WithValue(ctx, dirKey{}, e.spec.ControlDir), job, stdio)
	}
	b := newBenchWith(t, e, func(c *orchestrator.Config) {
		c.Tools, c.Audit, c.AuditKey = tools, tools, []byte("key")
	})
	r := b.do(t, t.Context(), run.Request{Source: hello, Options: run.Options{Ns: []string{"web"}, Session: "s"}})

	require.Equal(t, run.Exited, r.State, "%v", r.Error)
	require.JSONEq(t, `{"total":3}`, string(r.Result))
	require.Len(t, r.Emits, 1)
	require.Len(t, r.Artifacts, 1)
	require.Len(t, r.Calls, 4)
	require.Len(t, tools.called, 2, "what is not granted does not reach a server")
	require.Equal(t, "s", tools.called[0].Session)

	require.True(t, r.Calls[0].OK)
	require.Equal(t, r.Calls[0].ArgsHash, r.Calls[1].ArgsHash, "white space does not count")
	require.NotEqual(t, r.Calls[0].ArgsHash, r.Calls[2].ArgsHash)
	require.Equal(t, run.CodeNotFound, r.Calls[2].Error)
	require.Equal(t, run.CodeDenied, r.Calls[3].Error, "options.ns holds it back")
	require.Equal(t, "my-db", r.Calls[3].Server)
	require.True(t, warned(r, "careful"))

	text, err := json.Marshal(b.events)
	require.NoError(t, err)
	require.NotContains(t, string(text), "hunter2")
	require.NotContains(t, string(text), "secret")
	require.Len(t, tools.audit, 4)
	require.Equal(t, []string{"run-1"}, tools.ended)
	require.Equal(t, "local", tools.audit[0].Principal)
	require.Positive(t, tools.audit[0].ResponseBytes)
	require.Contains(t, answers[0], "200")
	require.Contains(t, answers[0], "secret get")
	require.Contains(t, answers[3], "403")
}

func warned(r run.Result, what string) bool {
	for _, line := range r.Logs {
		if line.Level == "warn" && strings.Contains(line.Message, what) {
			return true
		}
	}
	return false
}

func TestPolicyHoldsToolsBack(t *testing.T) {
	doc, err := policies.Parse("site.yaml", []byte("version: 1\nextends: builtin\ndefaults:\n  tools: {allow: [\"web.*\"], confirmDestructive: true}\n"))
	require.NoError(t, err)
	tools := &stock{}
	var answers []string
	e := &scripted{}
	script := calling(t, [][2]string{{"/v1/call/web/wipe", `{}`}, {"/v1/call/my-db/query", `{}`}}, &answers)
	e.run = func(ctx context.Context, job engine.Job, stdio engine.IO) (engine.Exit, error) {
		return script(context.WithValue(ctx, dirKey{}, e.spec.ControlDir), job, stdio)
	}
	b := newBenchWith(t, e, func(c *orchestrator.Config) { c.Tools, c.Policies = tools, doc })
	r := b.do(t, t.Context(), run.Request{Source: hello})
	require.Empty(t, tools.called)
	for i, call := range r.Calls {
		require.Equal(t, run.CodeToolDenied, call.Error)
		require.Contains(t, answers[i], "403")
	}
	require.Len(t, r.Calls, 2)
}
