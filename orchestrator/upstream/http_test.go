package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
	"mcpx/orchestrator/upstream"
)

// remote serves handler, which must see the token that the configuration has.
func remote(t *testing.T, transport upstream.Transport, handler http.Handler) upstream.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t0psecret" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return upstream.Server{Name: "far", Transport: transport, URL: s.URL + "/mcp", Headers: map[string]string{"Authorization": "Bearer t0psecret"},
		StartTimeout: 10 * time.Second, CallTimeout: 10 * time.Second}
}

func TestRemoteServersAreCalled(t *testing.T) {
	one := func(*http.Request) *mcp.Server { return newServer() }
	for name, c := range map[string]struct {
		transport upstream.Transport
		handler   http.Handler
	}{
		"streamable":            {upstream.HTTP, mcp.NewStreamableHTTPHandler(one, nil)},
		"streamable, JSON":      {upstream.HTTP, mcp.NewStreamableHTTPHandler(one, &mcp.StreamableHTTPOptions{JSONResponse: true})},
		"streamable, newest":    {upstream.HTTP, mcp.NewStreamableHTTPHandler(one, &mcp.StreamableHTTPOptions{Stateless: true})},
		"HTTP+SSE (2024-11-05)": {upstream.SSE, mcp.NewSSEHandler(one, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			m := manager(t, remote(t, c.transport, c.handler))
			text, err := call(t, m, "far", "echo", `{"text":"hi"}`)
			require.NoError(t, err)
			require.Equal(t, "hi", text)
			result, err := m.Call(t.Context(), tool.Call{Server: "far", Tool: "fail"})
			require.NoError(t, err)
			require.True(t, result.IsError)
			require.NotEmpty(t, m.Servers(t.Context())[0].Tools)
		})
	}
}

func TestRemoteProgressAndCancellation(t *testing.T) {
	inner := newServer()
	cancelled := make(chan struct{})
	mcp.AddTool(inner, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
		<-ctx.Done()
		close(cancelled)
		return nil, nil, ctx.Err()
	})
	m := manager(t, remote(t, upstream.HTTP, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return inner }, nil)))
	var mu sync.Mutex
	var seen []float64
	_, err := m.Call(t.Context(), tool.Call{Server: "far", Tool: "progress", Progress: func(done, _ float64, _ string) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, done)
	}})
	require.NoError(t, err)
	require.Equal(t, []float64{1, 2, 3, 4, 5}, seen)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err = m.Call(ctx, tool.Call{Server: "far", Tool: "wait"})
	problem(t, err, run.CodeCancelled, context.Canceled)
	select {
	case <-cancelled:
	case <-time.After(5 * time.Second):
		t.Fatal("the server was not told")
	}
}

func TestWrongTokenIsSaidAndNotShown(t *testing.T) {
	s := remote(t, upstream.HTTP, http.NotFoundHandler())
	s.Headers["Authorization"] = "Bearer wr0ngsecret"
	m := manager(t, s)
	err := m.Refresh(t.Context())
	e := problem(t, err, run.CodeUpstreamUnavailable, errdefs.ErrUnavailable)
	require.Contains(t, e.Message, "Unauthorized")
	require.NotContains(t, e.Message+e.Hint+m.Status()[0].LastError, "wr0ngsecret")
}

func TestSecretsInAddressesAreNotShown(t *testing.T) {
	m := manager(t, upstream.Server{Name: "far", Transport: upstream.HTTP, URL: "http://user:passw0rd@127.0.0.1:1/mcp?token=querysecret"})
	err := m.Refresh(t.Context())
	e := problem(t, err, run.CodeUpstreamUnavailable, errdefs.ErrUnavailable)
	require.NotContains(t, e.Message, "passw0rd")
	require.NotContains(t, e.Message, "querysecret")
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", m.Status(), m.Servers(t.Context()), upstream.Server{URL: "http://x?token=querysecret"}), "querysecret")
}

func TestTokenDoesNotFollowRedirects(t *testing.T) {
	var leaked atomic.Bool
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked.Store(r.Header.Get("Authorization") != "")
	}))
	defer thief.Close()
	m := manager(t, remote(t, upstream.HTTP, http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect)))
	require.Error(t, m.Refresh(t.Context()))
	require.False(t, leaked.Load())
}

// badHTTP answers tools/call as the test says, and all else well.
type badHTTP struct {
	session atomic.Int64
	calls   atomic.Int64
	call    atomic.Pointer[answer]
}

type answer func(w http.ResponseWriter, id json.RawMessage, session string)

func bad(call answer) *badHTTP {
	b := &badHTTP{}
	b.call.Store(&call)
	return b
}

func (b *badHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var req struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if r.Method != http.MethodPost || err != nil || json.Unmarshal(body, &req) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	reply := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, req.ID, result)
	}
	switch req.Method {
	case "initialize":
		w.Header().Set("Mcp-Session-Id", fmt.Sprint(b.session.Add(1)))
		reply(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bad","version":"1"}}`)
	case "tools/list":
		reply(`{"tools":[{"name":"go","inputSchema":{"type":"object"}}]}`)
	case "tools/call":
		b.calls.Add(1)
		(*b.call.Load())(w, req.ID, r.Header.Get("Mcp-Session-Id"))
	case "server/discover":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, req.ID)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func TestBadHTTPAnswersAreTypedErrors(t *testing.T) {
	write := func(kind, text string) answer {
		return func(w http.ResponseWriter, id json.RawMessage, _ string) {
			w.Header().Set("Content-Type", kind)
			io.WriteString(w, strings.ReplaceAll(text, "ID", string(id)))
		}
	}
	status := func(code int) answer {
		return func(w http.ResponseWriter, _ json.RawMessage, _ string) { w.WriteHeader(code) }
	}
	large := `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 2<<20) + `"}]}}`
	for name, c := range map[string]struct {
		call  answer
		code  string
		class error
	}{
		"too large":          {write("application/json", large), run.CodeResponseTooLarge, errdefs.ErrOutOfRange},
		"too large event":    {write("text/event-stream", "data: "+large+"\n\n"), run.CodeResponseTooLarge, errdefs.ErrOutOfRange},
		"not JSON":           {write("application/json", "{oops"), run.CodeInvalidResponse, errdefs.ErrDataLoss},
		"event that is none": {write("text/event-stream", "data: {oops\n\n"), run.CodeInvalidResponse, errdefs.ErrDataLoss},
		"not UTF-8":          {write("application/json", "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"\xff\"}]}}"), run.CodeInvalidResponse, errdefs.ErrDataLoss},
		"page of a proxy":    {write("text/html", "<h1>nginx</h1>"), run.CodeInvalidResponse, errdefs.ErrDataLoss},
		"stream without end": {write("text/event-stream", ": nothing\n\n"), run.CodeOutcomeUnknown, errdefs.ErrUnavailable},
		"500":                {status(500), run.CodeOutcomeUnknown, errdefs.ErrUnavailable},
		"502":                {status(502), run.CodeOutcomeUnknown, errdefs.ErrUnavailable},
		"503":                {status(503), run.CodeUpstreamUnavailable, errdefs.ErrUnavailable},
		"403":                {status(403), run.CodeUpstreamUnavailable, errdefs.ErrUnavailable},
		"400":                {status(400), run.CodeUpstreamError, errdefs.ErrUnknown},
		"broken off": {func(w http.ResponseWriter, _ json.RawMessage, _ string) { panic(http.ErrAbortHandler) },
			run.CodeOutcomeUnknown, errdefs.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			bad := bad(c.call)
			m, err := upstream.New(upstream.Config{Servers: []upstream.Server{remote(t, upstream.HTTP, bad)}, Dir: t.TempDir(), MaxResponse: 1 << 20})
			require.NoError(t, err)
			defer func() { require.NoError(t, m.Close(t.Context())) }()
			_, err = call(t, m, "far", "go", "")
			problem(t, err, c.code, c.class)
			require.EqualValues(t, 1, bad.calls.Load(), "it is not called again")
			well := write("application/json", `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"well"}]}}`)
			bad.call.Store(&well)
			text, err := call(t, m, "far", "go", "")
			require.NoError(t, err)
			require.Equal(t, "well", text)
		})
	}
}

func TestForgottenSessionIsMadeAnewAndTheCallIsMade(t *testing.T) {
	bad := bad(func(w http.ResponseWriter, id json.RawMessage, session string) {
		if session == "1" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"again"}]}}`, id)
	})
	m := manager(t, remote(t, upstream.HTTP, bad))
	text, err := call(t, m, "far", "go", "")
	require.NoError(t, err)
	require.Equal(t, "again", text)
}

func TestServerThatIsNotThereIsUnavailable(t *testing.T) {
	s := remote(t, upstream.HTTP, http.NotFoundHandler())
	s.URL = "http://127.0.0.1:1/mcp"
	m := manager(t, s)
	_, err := call(t, m, "far", "go", "")
	problem(t, err, run.CodeUpstreamUnavailable, errdefs.ErrUnavailable)
}
