package sidecar_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/frame"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/sidecar"
	"mcpx/orchestrator/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// notes is a run that remembers what its script said.
type notes struct {
	emits   []string
	logs    []string
	results []string
	calls   []string
	called  chan struct{} // told of each call, when set
	fail    error
}

func (n *notes) Result(value json.RawMessage) error {
	n.results = append(n.results, string(value))
	return n.fail
}

func (n *notes) Tools(context.Context) ([]tool.Server, error) {
	return []tool.Server{{Name: "s", Namespace: "s", Tools: []tool.Tool{}}}, n.fail
}

func (n *notes) Call(ctx context.Context, server, name string, args json.RawMessage) (tool.Result, error) {
	if n.called != nil {
		n.called <- struct{}{}
		<-ctx.Done()
		return tool.Result{}, context.Cause(ctx)
	}
	n.calls = append(n.calls, server+"."+name+" "+string(args))
	switch name {
	case "broken":
		return tool.Result{IsError: true, Raw: json.RawMessage(`{"isError":true,"content":[{"type":"text","text":"no"}]}`)}, nil
	case "denied":
		return tool.Result{}, &run.Error{Code: run.CodeDenied, Class: errdefs.ErrPermissionDenied, Message: "not granted", Hint: "ask"}
	}
	return tool.Result{Raw: json.RawMessage(`{"content":[{"type":"text","text":"{\"a\":1}"}]}`)}, n.fail
}

func (n *notes) Artifact(_ context.Context, name, mime string, size int64, body io.Reader) (run.Artifact, error) {
	text, err := io.ReadAll(body)
	return run.Artifact{ID: "a", Name: name, MIME: mime, Size: int64(len(text))}, errors.Join(err, n.fail)
}

func (n *notes) OpenArtifact(_ context.Context, id string) (run.Artifact, *os.File, error) {
	if id != "a" {
		return run.Artifact{}, nil, &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound, Message: "no artifact"}
	}
	file, err := os.Open(os.Args[0])
	return run.Artifact{ID: "a", Name: "x", MIME: "application/octet-stream", SHA256: "00"}, file, err
}

func (n *notes) Emit(value json.RawMessage) error {
	n.emits = append(n.emits, string(value))
	return n.fail
}

func (n *notes) Log(level, message string) error {
	n.logs = append(n.logs, level+": "+message)
	return n.fail
}

func open(t *testing.T, dir string) (*sidecar.Sidecar, *http.Client) {
	t.Helper()
	s, err := sidecar.Listen(dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialIn(ctx, dir)
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.Close()
	})
	return s, &http.Client{Transport: transport}
}

// dialIn connects as a container would, where the path is short.
func dialIn(ctx context.Context, dir string) (net.Conn, error) {
	short, err := os.MkdirTemp("/tmp", "s")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(short)
	link := filepath.Join(short, "d")
	if err := os.Symlink(dir, link); err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(link, engine.SocketName))
}

func post(t *testing.T, c *http.Client, path, body string) (int, string) {
	t.Helper()
	resp, err := c.Post("http://mcpx"+path, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func TestScriptSpeaksToItsRun(t *testing.T) {
	s, c := open(t, t.TempDir())
	status, _ := post(t, c, "/v1/emit", `1`)
	require.Equal(t, http.StatusServiceUnavailable, status, "no script runs yet")

	n := &notes{}
	release := s.Bind(t.Context(), n)
	for _, call := range []struct {
		path, body string
		status     int
	}{
		{"/v1/emit", `{"n":1}`, 204},
		{"/v1/emit", `{"n":`, 400},
		{"/v1/emit", ``, 400},
		{"/v1/log", `{"message":"m"}`, 204},
		{"/v1/log", `{"level":"warn","message":"w"}`, 204},
		{"/v1/log", `{"level":"loud","message":"w"}`, 400},
		{"/v1/log", `no`, 400},
		{"/v1/runs", `{}`, 404},
	} {
		status, text := post(t, c, call.path, call.body)
		require.Equal(t, call.status, status, "%s %s: %s", call.path, call.body, text)
	}
	require.Equal(t, []string{`{"n":1}`}, n.emits)
	require.Equal(t, []string{"info: m", "warn: w"}, n.logs)

	n.fail = errors.New("disk full")
	status, text := post(t, c, "/v1/emit", `2`)
	require.Equal(t, 500, status)
	require.NotContains(t, text, "disk")

	release()
	status, _ = post(t, c, "/v1/emit", `3`)
	require.Equal(t, http.StatusServiceUnavailable, status, "the script is over")
}

func TestEntriesAreBounded(t *testing.T) {
	s, c := open(t, t.TempDir())
	n := &notes{}
	defer s.Bind(t.Context(), n)()
	status, _ := post(t, c, "/v1/emit", `"`+strings.Repeat("x", 1<<20)+`"`)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	block := `"` + strings.Repeat("x", 1<<20-2) + `"`
	refused := 0
	for range 10 {
		if status, _ := post(t, c, "/v1/emit", block); status == http.StatusTooManyRequests {
			refused++
		}
	}
	require.Len(t, n.emits, 8)
	require.Equal(t, 2, refused)
}

func TestOnlyTheFirstConnectionIsInit(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir)
	dial := func() (net.Conn, error) {
		link := filepath.Join(t.TempDir(), "l")
		require.NoError(t, os.Symlink(dir, link))
		return frame.Dial(t.Context(), filepath.Join(link, engine.SocketName))
	}
	first, err := dial()
	require.NoError(t, err)
	defer first.Close()
	_, err = dial()
	require.Error(t, err, "a script must not pass for init")

	conn, err := s.Accept(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, s.Close())
	_, err = conn.Write([]byte("x"))
	require.NoError(t, err, "init's connection belongs to the engine")
}

func TestAcceptEndsWithItsContextAndWithTheSocket(t *testing.T) {
	s, _ := open(t, t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	_, err := s.Accept(ctx)
	require.ErrorContains(t, err, "enough")
	require.NoError(t, s.Close())
	_, err = s.Accept(t.Context())
	require.ErrorIs(t, err, errdefs.ErrUnavailable)
}

func TestSocketPathMayBeLong(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	require.NoError(t, os.Mkdir(dir, 0o755))
	_, c := open(t, dir)
	status, _ := post(t, c, "/v1/emit", `1`)
	require.Equal(t, http.StatusServiceUnavailable, status)
	info, err := os.Stat(filepath.Join(dir, engine.SocketName))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o666), info.Mode().Perm(), "any USER of an image can connect")
}

func TestToolCalls(t *testing.T) {
	s, c := open(t, t.TempDir())
	n := &notes{}
	defer s.Bind(t.Context(), n)()
	for _, call := range []struct {
		path, body string
		status     int
		answer     string
	}{
		{"/v1/call/s/t", `{"x":1}`, 200, `{"value":{"a":1},"raw":{"content":[{"type":"text","text":"{\"a\":1}"}]}}`},
		{"/v1/call/s/broken", `{}`, 200, `{"isError":true,"text":"no","raw":{"isError":true,"content":[{"type":"text","text":"no"}]}}`},
		{"/v1/call/s/denied", `{}`, 403, `{"type":"about:blank","title":"Forbidden","status":403,"detail":"not granted","code":"denied","hint":"ask"}`},
		{"/v1/call/a%2Fb/t", `{}`, 200, ""},
		{"/v1/result", `7`, 204, ""},
	} {
		status, text := post(t, c, call.path, call.body)
		require.Equal(t, call.status, status, "%s: %s", call.path, text)
		if call.answer != "" {
			require.JSONEq(t, call.answer, text)
		}
	}
	require.Contains(t, n.calls, `a/b.t {}`)
	require.Equal(t, []string{"7"}, n.results)
}

// What a script has asked for ends with it: its run waits for the answer.
func TestReleaseEndsCallsUnderWay(t *testing.T) {
	s, c := open(t, t.TempDir())
	n := &notes{called: make(chan struct{})}
	release := s.Bind(t.Context(), n)
	answered := make(chan int)
	go func() {
		status, _ := post(t, c, "/v1/call/s/t", `{}`)
		answered <- status
	}()
	<-n.called
	release()
	require.Equal(t, http.StatusInternalServerError, <-answered)
}

func TestArtifactsGoUpAndDown(t *testing.T) {
	s, c := open(t, t.TempDir())
	defer s.Bind(t.Context(), &notes{})()
	status, text := post(t, c, "/v1/artifacts?name=a.json", `{"x":1}`)
	require.Equal(t, http.StatusCreated, status, text)
	require.JSONEq(t, `{"id":"a","name":"a.json","mime":"application/json","size":7,"sha256":"","uri":""}`, text)
	resp, err := c.Get("http://mcpx/v1/artifacts/a")
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	resp, err = c.Get("http://mcpx/v1/artifacts/b")
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 404, resp.StatusCode)
}
