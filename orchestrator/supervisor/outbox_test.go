package supervisor_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mcpx/orchestrator/engine"
)

const sparseSize = 1 << 40

// fillOutbox leaves one entry of every kind; it runs in a box.
func fillOutbox() error {
	if err := os.Chdir("/outbox"); err != nil {
		return err
	}
	deep := strings.TrimSuffix(strings.Repeat("d/", 31), "/")
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	return errors.Join(err,
		os.WriteFile("empty", nil, 0o644),
		os.WriteFile("测试文件.txt", []byte("text"), 0o640),
		os.WriteFile("not\xffutf8", []byte("bytes"), 0o600),
		os.WriteFile(`..\x`, []byte("no directory"), 0o644),
		os.MkdirAll("sub/empty", 0o755),
		os.WriteFile("sub/run", []byte("#!"), 0o755), os.Chmod("sub/run", 0o755|fs.ModeSetuid|fs.ModeSetgid),
		os.Link("sub/run", "hard"),
		os.Symlink("/etc/passwd", "link"),
		os.Symlink("/", "link-to-dir"),
		os.Symlink("sub/run", "sub/link-inside"),
		unix.Mkfifo("pipe", 0o666),
		unix.Bind(socket, &unix.SockaddrUnix{Name: "socket"}),
		os.WriteFile("sparse", nil, 0o644), os.Truncate("sparse", sparseSize),
		os.WriteFile("hidden", []byte("x"), 0), os.Mkdir("locked", 0),
		os.MkdirAll(deep+"/d/d", 0o755), os.WriteFile(deep+"/in", []byte("in"), 0o644), os.WriteFile(deep+"/d/out", nil, 0o644),
	)
}

// sink keeps what a walk tells.
type sink struct {
	files   map[string]string // content, or "unwanted SIZE"
	modes   map[string]fs.FileMode
	skipped map[string]string
	limit   int64
	fail    error
}

func newSink() *sink {
	return &sink{files: map[string]string{}, modes: map[string]fs.FileMode{}, skipped: map[string]string{}, limit: 64 << 20}
}

func (s *sink) File(name string, mode fs.FileMode, size int64) (engine.OutboxFile, error) {
	s.modes[name] = mode
	if size > s.limit {
		s.files[name] = fmt.Sprint("unwanted ", size)
		return nil, nil
	}
	return &sinkFile{sink: s, name: name}, s.fail
}

func (s *sink) Skip(name, reason string) error {
	s.skipped[name] = reason
	return s.fail
}

type sinkFile struct {
	sink *sink
	name string
	text []byte
}

func (f *sinkFile) Write(p []byte) (int, error) {
	f.text = append(f.text, p...)
	return len(p), nil
}
func (f *sinkFile) Commit() error { f.sink.files[f.name] = string(f.text); return nil }
func (f *sinkFile) Abort()        { f.sink.files[f.name] = "aborted" }

func TestOutboxOfEveryKind(t *testing.T) {
	b := open(t, nil)
	require.Zero(t, b.do(script("outbox")).Code)
	device := unix.Mknod(filepath.Join(b.stage.Outbox, "device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
	got := newSink()
	require.NoError(t, b.Collect(t.Context(), got))

	in := strings.Repeat("d/", 31) + "in"
	require.Equal(t, map[string]string{
		"empty": "", "测试文件.txt": "text", "not\xffutf8": "bytes", `..\x`: "no directory",
		"sub/run": "#!", "hard": "#!", "sparse": fmt.Sprint("unwanted ", int64(sparseSize)), in: "in",
	}, got.files)
	require.Equal(t, fs.FileMode(0o755), got.modes["sub/run"], "without the setuid bits")
	require.Equal(t, fs.FileMode(0o640), got.modes["测试文件.txt"])
	for name, reason := range map[string]string{
		"link": "symbolic link", "link-to-dir": "symbolic link", "sub/link-inside": "symbolic link",
		"pipe": "named pipe", "socket": "socket", "hidden": "permission denied", "locked": "permission denied",
		strings.TrimSuffix(strings.Repeat("d/", 32), "/"): "more than 32",
	} {
		require.Contains(t, got.skipped[name], reason, name)
		delete(got.skipped, name)
	}
	if device == nil { // only root can make one
		require.Contains(t, got.skipped["device"], "device")
		delete(got.skipped, "device")
	}
	require.Empty(t, got.skipped)
}

func TestOutboxHasTheBytes(t *testing.T) {
	b := open(t, nil)
	require.Zero(t, b.do(sh("/test script noise > /outbox/noise")).Code)
	got := newSink()
	require.NoError(t, b.Collect(t.Context(), got))
	var want strings.Builder
	require.NoError(t, noise(&want, 1))
	require.True(t, want.String() == got.files["noise"], "%d bytes differ", len(got.files["noise"]))
}

func TestOutboxEntriesAreBounded(t *testing.T) {
	b := open(t, nil)
	b.do(sh(`cd /outbox; i=0; while [ $i -lt 10100 ]; do : > f$i; i=$((i+1)); done`))
	got := newSink()
	require.NoError(t, b.Collect(t.Context(), got))
	require.Len(t, got.files, 10_000)
	require.Len(t, got.skipped, 1)
}

func TestNoOutbox(t *testing.T) {
	b := openOnHost(t)
	require.NoError(t, os.Remove(b.stage.Outbox))
	b.do(sh("true"))
	got := newSink()
	require.NoError(t, b.Collect(t.Context(), got))
	require.Empty(t, got.files)
}

func TestSinkEndsTheWalk(t *testing.T) {
	b := open(t, nil)
	b.do(script("outbox"))
	got := newSink()
	got.fail = errors.New("the disk is full")
	require.ErrorIs(t, b.Collect(t.Context(), got), got.fail)
	b.gone()
}

// deaf is a socket whose connections nobody accepts.
func deaf(t *testing.T, dir string) {
	path := filepath.Join(dir, "deaf.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o777))
	t.Cleanup(func() { l.Close() })
}
