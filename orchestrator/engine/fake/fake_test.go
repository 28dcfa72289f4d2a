package fake_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/fake"
	"mcpx/orchestrator/frame"
	"mcpx/orchestrator/frame/upgrade"
	"mcpx/orchestrator/supervisor/inittest"
	"mcpx/orchestrator/supervisor/proctree"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newEngine is an engine's life over dir.
func newEngine(t *testing.T, dir string) *fake.Engine {
	e, err := fake.New(fake.Config{Init: inittest.Build(t), Dir: dir, Images: map[string]engine.Image{"sh": {Digest: "sha256:01"}}})
	require.NoError(t, err)
	return e
}

// control is a run's socket, with a page for the script.
type control chan net.Conn

func (c control) Accept(ctx context.Context) (net.Conn, error) {
	select {
	case conn := <-c:
		return conn, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func listen(t *testing.T, dir string) control {
	t.Chdir(dir) // for the address may be too long
	listener, err := net.Listen("unix", engine.SocketName)
	require.NoError(t, err)
	c := make(control, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+frame.ControlPath, func(w http.ResponseWriter, r *http.Request) {
		if conn, err := upgrade.Accept(w, r); err == nil {
			c <- conn
		}
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "page") }) //nolint:errcheck
	server := &http.Server{Handler: mux}
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(listener) }) //nolint:errcheck // it ends with Close
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
	})
	return c
}

// spec has everything that has a place.
func spec(t *testing.T) engine.Spec {
	dir := t.TempDir()
	mounted := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(mounted, "data"), []byte("data"), 0o644))
	return engine.Spec{
		Owner: "me", Run: "r1", Image: "sh", Outbox: 1 << 20, ControlDir: dir, Control: listen(t, dir),
		Tmpfs:  []engine.Tmpfs{{Target: "/tmp"}, {Target: "/work", Mode: 0o700}, {Target: "/tmp/home"}},
		Mounts: []engine.Mount{{Source: mounted, Target: "/caller"}}, Workdir: "/work", Network: engine.NetworkNone,
	}
}

func TestContainerPathsAreFoundOnTheHost(t *testing.T) {
	s := spec(t)
	dir := t.TempDir()
	c, err := newEngine(t, dir).Prepare(t.Context(), s)
	require.NoError(t, err)
	defer c.Remove(t.Context()) //nolint:errcheck // it is checked below
	text := `set -e
pwd; cat "$1"; cat "$DATA"; echo "$LIST"; echo "$HOME"; echo "$URL"; echo "/outbox"
echo kept > "$MCPX_OUTBOX/file"; exec "$FETCH" "$URL"`
	var out bytes.Buffer
	exit, err := c.Run(t.Context(), engine.Job{
		Argv: []string{"sh", "/run/mcpx/job/main", "/run/mcpx/job/lib/text"},
		Cwd:  "/work",
		Env: []string{
			"PATH=/usr/bin:/bin", "DATA=/caller/data", "LIST=/outbox:/usr:/tmp/a:/tmpfile", "HOME=/tmp/home",
			"MCPX_OUTBOX=/outbox", "URL=http://127.0.0.1:7717/x", "FETCH=echo",
		},
		Files: []engine.File{{Path: "main", Data: []byte(text)}, {Path: "lib/text", Data: []byte("text\n")}},
	}, engine.IO{Stdout: &out, Stderr: &out})
	require.NoError(t, err)
	require.Zero(t, exit.Code, out.String())
	own := filepath.Join(dir, c.ID())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Equal(t, []string{
		own + "/tmpfs-1", "text", "data" + own + "/outbox:/usr:" + own + "/tmpfs-0/a:/tmpfile", own + "/tmpfs-2", lines[4], "/outbox", lines[4],
	}, lines)
	require.NotContains(t, lines[4], ":7717", "each has an endpoint of its own")
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/x$`, lines[4])

	got := files{}
	require.NoError(t, c.Collect(t.Context(), got))
	require.Equal(t, "kept\n", got["file"].String())
	require.NoError(t, c.Remove(t.Context()))
	require.NoError(t, c.Remove(t.Context()))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// files is an outbox's content.
type files map[string]*bytes.Buffer

type file struct{ *bytes.Buffer }

func (file) Commit() error { return nil }
func (file) Abort()        {}

func (f files) File(name string, _ os.FileMode, _ int64) (engine.OutboxFile, error) {
	f[name] = &bytes.Buffer{}
	return file{f[name]}, nil
}
func (files) Skip(string, string) error { return nil }

func TestPrepareThatFailsLeavesNothing(t *testing.T) {
	why := errors.New("enough")
	for name, change := range map[string]func(*engine.Spec, context.CancelCauseFunc){
		"no image":     func(s *engine.Spec, _ context.CancelCauseFunc) { s.Image = "none" },
		"no mount":     func(s *engine.Spec, _ context.CancelCauseFunc) { s.Mounts[0].Source = "/nope" },
		"no workdir":   func(s *engine.Spec, _ context.CancelCauseFunc) { s.Workdir = "/nope" },
		"no socket":    func(s *engine.Spec, _ context.CancelCauseFunc) { s.ControlDir = "/nope" },
		"context ends": func(s *engine.Spec, cancel context.CancelCauseFunc) { s.Control = make(control); cancel(why) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := spec(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			change(&s, cancel)
			_, err := newEngine(t, dir).Prepare(ctx, s)
			require.Error(t, err)
			if name == "context ends" {
				require.ErrorIs(t, err, why)
			}
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

func TestImages(t *testing.T) {
	e := newEngine(t, t.TempDir())
	image, err := e.EnsureImage(t.Context(), "sh", engine.PullNever)
	require.NoError(t, err)
	require.Equal(t, "sha256:01", image.Digest)
	_, err = e.EnsureImage(t.Context(), "other", engine.PullMissing)
	require.True(t, errdefs.IsNotFound(err))
	info, err := e.Info(t.Context())
	require.NoError(t, err)
	require.False(t, info.Enforces || info.MemoryLimit || info.PidsLimit || info.Seccomp, "it does not pretend")
}

// The engine of an earlier life is still there in this test, so its
// containers' inits are too: sweeping has to end them.
func TestSweepOfAnEarlierLife(t *testing.T) {
	dir := t.TempDir()
	s := spec(t)
	c, err := newEngine(t, dir).Prepare(t.Context(), s)
	require.NoError(t, err)
	later := newEngine(t, dir)
	n, err := later.Sweep(t.Context(), "somebody else")
	require.NoError(t, err)
	require.Zero(t, n)

	swept := make(chan error, 1)
	var below []proctree.Process
	text := "(setsid sleep 300 </dev/null >/dev/null 2>&1 &); trap '' TERM; mkdir -p $TMP/d; chmod 0 $TMP/d; echo ready; while :; do sleep 300; done"
	// Whether init still reports depends on who of the killed ends first.
	c.Run(t.Context(), engine.Job{ //nolint:errcheck
		Argv: []string{"/bin/sh", "-c", text}, Env: []string{"TMP=/tmp"}, Cwd: "/",
	}, engine.IO{Stdout: writerFunc(func(p []byte) (int, error) {
		below, _ = proctree.Descendants(os.Getpid())
		go func() {
			n, err := later.Sweep(context.WithoutCancel(t.Context()), "me")
			if n != 1 {
				err = errors.Join(err, errors.New("not one was swept"))
			}
			swept <- err
		}()
		return len(p), nil
	})})
	require.NoError(t, <-swept)
	require.GreaterOrEqual(t, len(below), 3)
	for _, p := range below {
		ended, err := p.Wait(30 * time.Second)
		require.NoError(t, err)
		require.True(t, ended)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, c.Remove(t.Context()))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestSweepSparesAProcessOfTheSameID(t *testing.T) {
	dir := t.TempDir()
	self, err := proctree.Find(os.Getpid())
	require.NoError(t, err)
	box := filepath.Join(dir, "container-old")
	require.NoError(t, os.Mkdir(box, 0o755))
	text := `{"mcpx.owner":"me","mcpx.run":"r","init":{"pid":` + strconv.Itoa(self.PID) + `,"start":` + strconv.Itoa(int(self.Start)-1) + `}}`
	require.NoError(t, os.WriteFile(filepath.Join(box, "record.json"), []byte(text), 0o600))
	n, err := newEngine(t, dir).Sweep(t.Context(), "me")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoDirExists(t, box)
}

func TestBrokenRecordIsTold(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "container-x"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "container-x/record.json"), []byte("{"), 0o600))
	_, err := newEngine(t, dir).Sweep(t.Context(), "me")
	require.Error(t, err)
}
