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
	"mcpx/orchestrator/sidecar"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// notes is a run that remembers what its script said.
type notes struct {
	emits []string
	logs  []string
	fail  error
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
	s.Bind(n)
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

	s.Bind(nil)
	status, _ = post(t, c, "/v1/emit", `3`)
	require.Equal(t, http.StatusServiceUnavailable, status, "the script is over")
}

func TestEntriesAreBounded(t *testing.T) {
	s, c := open(t, t.TempDir())
	n := &notes{}
	s.Bind(n)
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
