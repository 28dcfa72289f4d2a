package client_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/client"
	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/sidecar"
	"mcpx/orchestrator/supervisor/inittest"
	"mcpx/orchestrator/tool"
)

// world is a run's own directory with the real sidecar on its socket, and what
// a script there has done.
type world struct {
	t        *testing.T
	dir      string
	endpoint string

	mu        sync.Mutex
	calls     []string
	emits     []string
	logs      []string
	result    string
	artifacts []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mcpx-client-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	w := &world{t: t, dir: dir}
	s, err := sidecar.Listen(dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	release := s.Bind(t.Context(), w)
	t.Cleanup(func() {
		release()
		require.NoError(t, s.Close())
	})
	w.relay()
	return w
}

// relay is what init does in a container: the loopback leads to the socket.
func (w *world) relay() {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(w.t, err)
	w.endpoint = "http://" + listener.Addr().String()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "mcpx"})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(w.dir, engine.SocketName))
	}}
	proxy.Transport = transport
	server := &http.Server{Handler: proxy}
	go server.Serve(listener) //nolint:errcheck // ends with the server
	w.t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
	})
}

// place writes files where a script finds them.
func (w *world) place(files ...engine.File) {
	for _, f := range files {
		name := filepath.Join(w.dir, "job", filepath.FromSlash(f.Path))
		require.NoError(w.t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(w.t, os.WriteFile(name, f.Data, f.Mode))
	}
}

func (w *world) client(lang string, servers []tool.Server, ns ...string) {
	files, err := client.Files(lang, servers, ns)
	require.NoError(w.t, err)
	w.place(files...)
}

// types adds what a type checker reads.
func (w *world) types(lang string, servers []tool.Server) {
	files, err := client.Types(lang, servers, nil)
	require.NoError(w.t, err)
	w.place(files...)
}

type outcome struct {
	stdout, stderr string
	code           int
}

// inImage runs a command in an interpreter's image, on the host's loopback.
func (w *world) inImage(image string, env map[string]string, argv ...string) outcome {
	args := []string{"run", "--rm", "--network", "host", "--read-only", "--tmpfs", "/tmp:mode=1777", "-v", w.dir + ":/run/mcpx:ro", "-w", "/tmp",
		"--entrypoint", argv[0], "-e", "MCPX_ENDPOINT=" + w.endpoint, "-e", "MCPX_SOCKET=" + engine.SocketPath}
	for name, value := range env {
		args = append(args, "-e", name+"="+value)
	}
	return w.run(exec.CommandContext(w.t.Context(), "docker", slices.Concat(args, []string{image}, argv[1:])...))
}

// onHost runs a shell command here, with the init of this tree.
func (w *world) onHost(http string, script string) outcome {
	cmd := exec.CommandContext(w.t.Context(), "/bin/sh", "-c", script)
	cmd.Dir = w.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "MCPX_HTTP=" + http, "MCPX_INIT=" + inittest.Build(w.t), "MCPX_ENDPOINT=" + w.endpoint,
		"MCPX_SOCKET=" + filepath.Join(w.dir, engine.SocketName), "MCPX_CLIENT=" + filepath.Join(w.dir, "job/client/mcpx.sh"), "MCPX_INBOX=" + filepath.Join(w.dir, "inbox")}
	return w.run(cmd)
}

func (w *world) run(cmd *exec.Cmd) outcome {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		require.NoError(w.t, err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// withImages tells whether the interpreters' images are to be used.
func withImages(t *testing.T) bool {
	t.Helper()
	if os.Getenv("RUN_ENGINE") == "" {
		t.Log("not run: interpreters in their images want RUN_ENGINE=docker")
		return false
	}
	return true
}

// What the script's run does.

func (w *world) Emit(value json.RawMessage) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.emits = append(w.emits, string(value))
	return nil
}

func (w *world) Log(level, message string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logs = append(w.logs, level+": "+message)
	return nil
}

func (w *world) Result(value json.RawMessage) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result = string(value)
	return nil
}

func (w *world) Tools(context.Context) ([]tool.Server, error) { return servers(), nil }

const png = "iVBORw0KGgo="

func (w *world) Call(_ context.Context, server, name string, args json.RawMessage) (tool.Result, error) {
	w.mu.Lock()
	w.calls = append(w.calls, server+"/"+name+" "+string(args))
	w.mu.Unlock()
	text := func(s string) json.RawMessage {
		quoted, err := json.Marshal(s)
		require.NoError(w.t, err)
		return json.RawMessage(`{"content":[{"type":"text","text":` + string(quoted) + `}]}`)
	}
	switch name {
	case "shot":
		return tool.Result{Raw: json.RawMessage(`{"content":[{"type":"text","text":"done"},{"type":"image","data":"` + png + `","mimeType":"image/png"}]}`)}, nil
	case "broken":
		return tool.Result{IsError: true, Raw: json.RawMessage(`{"isError":true,"content":[{"type":"text","text":"the page is \"gone\""}]}`)}, nil
	case "denied":
		return tool.Result{}, &run.Error{Code: run.CodeDenied, Class: errdefs.ErrPermissionDenied, Message: "not granted", Hint: "ask for it"}
	case "text":
		return tool.Result{Raw: text("line 1\n\"two\" \\ ≤ 😀\t.")}, nil
	case "long":
		return tool.Result{Raw: text(strings.Repeat("0123456789abcde\n", 1<<16))}, nil
	}
	return tool.Result{Raw: json.RawMessage(`{"content":[],"structuredContent":{"got":` + string(args) + `}}`)}, nil
}

func (w *world) Artifact(_ context.Context, name, mime string, _ int64, body io.Reader) (run.Artifact, error) {
	data, err := io.ReadAll(body)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.artifacts = append(w.artifacts, strings.Join([]string{name, cmp.Or(mime, "-"), string(data[:min(len(data), 40)])}, " "))
	return run.Artifact{ID: "a1", Name: name, MIME: mime, Size: int64(len(data)), URI: "mcpx://artifacts/a1"}, err
}

func (w *world) OpenArtifact(context.Context, string) (run.Artifact, *os.File, error) {
	return run.Artifact{}, nil, &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound, Message: "no artifact"}
}

// servers is a small catalogue.
func servers() []tool.Server {
	made := func(server, name, function, input, output string) tool.Tool {
		return tool.Tool{Server: server, Name: name, Namespace: "web", Function: function, Description: "Does " + name + ".",
			InputSchema: json.RawMessage(input), OutputSchema: json.RawMessage(output)}
	}
	return []tool.Server{
		{Name: "web/1", Namespace: "web", Description: "A browser.", Tools: []tool.Tool{
			made("web/1", "shot", "shot", `{"type":"object","properties":{"format":{"enum":["png","jpeg"],"description":"Of the image."},"full":{"type":"boolean","default":false}}}`, ""),
			made("web/1", "go to", "go_to", `{"type":"object","properties":{"url":{"type":"string"},"class":{"type":"string"}},"required":["url"]}`,
				`{"type":"object","properties":{"got":{"type":"object"}},"required":["got"]}`),
			made("web/1", "broken", "broken", `{"type":"object"}`, ""),
			made("web/1", "denied", "denied", `{"type":"object"}`, ""),
			made("web/1", "text", "text", `{"type":"object"}`, ""),
			made("web/1", "long", "long", `{"type":"object"}`, ""),
		}},
		{Name: "dark", Namespace: "dark", Err: "not started yet", Tools: []tool.Tool{}},
	}
}
