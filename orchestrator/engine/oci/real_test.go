package oci_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/oci"
	"mcpx/orchestrator/sidecar"
)

const testOwner = "oci-real-test"

// specOf is a usual container. Its socket is the one that real runs have.
func specOf(t *testing.T, name string) engine.Spec {
	t.Helper()
	dir, err := os.MkdirTemp("", "mcpx")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	s, err := sidecar.Listen(dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, os.RemoveAll(dir))
	})
	return engine.Spec{
		Owner: testOwner, Run: name, Image: "mcpx/bash", User: "65532:65532", Network: engine.NetworkNone,
		ControlDir: dir, Control: s,
	}
}

// result is what a job printed, and how it ended.
type result struct {
	engine.Exit
	stdout, stderr string
}

func runIn(t *testing.T, e *oci.Engine, spec engine.Spec, argv ...string) result {
	t.Helper()
	c, err := e.Prepare(t.Context(), spec)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Remove(context.WithoutCancel(t.Context()))) }()
	var stdout, stderr bytes.Buffer
	exit, err := c.Run(t.Context(), engine.Job{Argv: argv, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin"}}, engine.IO{Stdout: &stdout, Stderr: &stderr})
	require.NoError(t, err)
	return result{exit, stdout.String(), stderr.String()}
}

// syscalls makes calls that no script may make, and prints what came of them.
const syscalls = `
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(name, number, *args):
    ctypes.set_errno(0)
    got = libc.syscall(number, *args)
    print(name, "passed" if got >= 0 else errno.errorcode[ctypes.get_errno()])
for name, number, args in (
    ("mount", 165, (b"none", b"/tmp", b"tmpfs", 0, 0)), ("unshare", 272, (0x10000000,)), ("setns", 308, (0, 0)),
    ("keyctl", 250, (0, 0)), ("add_key", 248, (b"user", b"a", b"b", 1, -2)), ("bpf", 321, (0, 0, 0)), ("clone3", 435, (0, 0)),
    ("personality", 135, (0x0400000,)), ("socket", 41, (40, 1, 0)), ("io_uring_setup", 425, (1, 0)), ("getpid", 39, ()),
):
    call(name, number, *args)
`

// TestOCIScriptsAreFilteredFromTheirFirstInstruction: the filter is there
// before init begins, which starts the script; what it refuses is refused by
// it, for without it some of these would answer EINVAL, EFAULT, or work.
func TestOCIScriptsAreFilteredFromTheirFirstInstruction(t *testing.T) {
	for _, runtime := range []string{"crun", "runc"} {
		t.Run(runtime, func(t *testing.T) {
			e := open(t, oci.Config{Dir: storeDir(t), Runtime: runtime})
			status := runIn(t, e, specOf(t, "status-"+runtime), "cat", "/proc/self/status", "/proc/1/status")
			require.Equal(t, engine.Exit{}, status.Exit, status.stderr)
			require.Equal(t, 2, strings.Count(status.stdout, "Seccomp:\t2\n"), status.stdout)
			require.Equal(t, 2, strings.Count(status.stdout, "Seccomp_filters:\t1\n"), status.stdout)
			require.Equal(t, 2, strings.Count(status.stdout, "NoNewPrivs:\t1\n"), status.stdout)

			spec := specOf(t, "syscalls-"+runtime)
			spec.Image = "mcpx/python3"
			calls := runIn(t, e, spec, "python3", "-c", syscalls)
			require.Equal(t, engine.Exit{}, calls.Exit, calls.stderr)
			require.Equal(t, strings.Fields(`mount EPERM unshare EPERM setns EPERM keyctl EPERM add_key EPERM bpf EPERM
clone3 ENOSYS personality EPERM socket EPERM io_uring_setup EPERM getpid passed`), strings.Fields(calls.stdout))
		})
	}
}

func TestOCIInitThatCannotRunIsTold(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "init")
	require.NoError(t, os.WriteFile(bad, []byte("\x7fELF of no machine"), 0o755))
	for name, c := range map[string]struct {
		path, carried string
		says          string
	}{
		"wrong format":      {bad, "", bad + " ended at once"},
		"ends at once":      {"/bin/false", "", "/bin/false ended at once"},
		"another protocol":  {"", "0", "has none to mount"},
		"is of another use": {"/bin/true", "", "/bin/true ended at once"},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := oci.New(oci.Config{Dir: storeDir(t), InitPath: c.path})
			require.NoError(t, err)
			defer e.Close()
			spec := specOf(t, strings.ReplaceAll(name, " ", "-"))
			spec.ImageInit = c.carried
			_, err = e.Prepare(t.Context(), spec)
			require.ErrorContains(t, err, c.says)
			require.Empty(t, leftovers(t, storeDir(t), testOwner))
		})
	}
}

func TestOCILimitItCannotSetIsTold(t *testing.T) {
	spec := specOf(t, "nofile")
	spec.Limits.NoFile = 1 << 30
	_, err := open(t, oci.Config{Dir: storeDir(t)}).Prepare(t.Context(), spec)
	require.ErrorContains(t, err, "RLIMIT_NOFILE")
	require.Empty(t, leftovers(t, storeDir(t), testOwner))
}

func TestOCINamesThatAreNoneAreRefused(t *testing.T) {
	e := open(t, oci.Config{Dir: storeDir(t)})
	for _, name := range []string{"", "..", "a/b", "a b", "ä", strings.Repeat("x", 101)} {
		spec := specOf(t, "r")
		spec.Owner = name
		_, err := e.Prepare(t.Context(), spec)
		require.ErrorIs(t, err, errdefs.ErrInvalidArgument, name)
	}
	for _, owner := range []string{"", "..", "a/b"} {
		_, err := e.Sweep(t.Context(), owner)
		require.ErrorIs(t, err, errdefs.ErrInvalidArgument, owner)
	}
}

// A name that comes twice must not cost the first one its life.
func TestOCINameThatIsTakenIsRefused(t *testing.T) {
	e := open(t, oci.Config{Dir: storeDir(t)})
	first, err := e.Prepare(t.Context(), specOf(t, "twice"))
	require.NoError(t, err)
	_, err = e.Prepare(t.Context(), specOf(t, "twice"))
	require.ErrorIs(t, err, errdefs.ErrAlreadyExists)
	exit, err := first.Run(t.Context(), engine.Job{Argv: []string{"sh", "-c", "exit 3"}, Cwd: "/", Env: []string{"PATH=/bin"}}, engine.IO{})
	require.NoError(t, err)
	require.Equal(t, engine.Exit{Code: 3}, exit)
	require.NoError(t, first.Remove(context.WithoutCancel(t.Context())))
}

// The host sees nothing of the mounts, so that nobody has to clear them up.
func TestOCIMountsStayInTheEngine(t *testing.T) {
	e := open(t, oci.Config{Dir: storeDir(t)})
	c, err := e.Prepare(t.Context(), specOf(t, "mounts"))
	require.NoError(t, err)
	seen, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	require.NotContains(t, string(seen), storeDir(t))
	require.NoError(t, c.Remove(context.WithoutCancel(t.Context())))
}

// Places of all kinds that no image has.
func TestOCIPlacesForMountsAreMade(t *testing.T) {
	e := open(t, oci.Config{Dir: storeDir(t)})
	spec := specOf(t, "places")
	for _, target := range []string{"/bin/inside/deep", "/etc/made", "/new", "/new/inside", "/var/run/by-a-link"} {
		spec.Tmpfs = append(spec.Tmpfs, engine.Tmpfs{Target: target, Bytes: 1 << 20})
	}
	spec.Workdir = "/new/inside"
	r := runIn(t, e, spec, "sh", "-c", `for d in /usr/bin/inside/deep /etc/made /new /new/inside /run/by-a-link; do : > $d/x && echo $d; done
stat -c '%u %a' /etc /usr/bin; test -e /etc/passwd && echo whole`)
	require.Equal(t, engine.Exit{}, r.Exit, r.stderr)
	require.Equal(t, "/usr/bin/inside/deep\n/etc/made\n/new\n/new/inside\n/run/by-a-link\n0 755\n0 755\nwhole\n", r.stdout)
}

// Two engines on one empty store, each of which starts several at once.
func TestOCIImageIsTakenOverByManyAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	engines := []*oci.Engine{open(t, oci.Config{Dir: dir}), open(t, oci.Config{Dir: dir})}
	before, err := engines[0].EnsureImage(t.Context(), "mcpx/bash", engine.PullNever)
	require.NoError(t, err)
	layers, err := os.ReadDir(filepath.Join(dir, "layers"))
	require.NoError(t, err)
	require.Empty(t, layers, "who only asks does not have it unpacked")
	var all sync.WaitGroup
	for n := range 6 {
		spec := specOf(t, fmt.Sprintf("many-%d", n))
		all.Go(func() {
			c, err := engines[n%2].Prepare(t.Context(), spec)
			if err == nil {
				err = c.Remove(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	left, err := filepath.Glob(filepath.Join(dir, "layers", ".new-*"))
	require.NoError(t, err)
	require.Empty(t, left)

	// It stays when the Docker that it came from is away.
	away := open(t, oci.Config{Dir: dir, DockerHost: "unix:///nonexistent/docker.sock"})
	i, err := away.EnsureImage(t.Context(), "mcpx/bash", engine.PullNever)
	require.NoError(t, err)
	require.Equal(t, before, i)
	i, err = away.EnsureImage(t.Context(), before.Digest, engine.PullNever)
	require.NoError(t, err)
	require.Equal(t, before, i)
	_, err = away.EnsureImage(t.Context(), "mcpx/python3", engine.PullMissing)
	require.ErrorIs(t, err, errdefs.ErrNotFound)
}

// mute is a Control that hangs up on init.
type mute struct{ net.Listener }

func (mute) Accept(ctx context.Context) (net.Conn, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestOCIStartIsBounded(t *testing.T) {
	e := open(t, oci.Config{Dir: storeDir(t), StartTimeout: 1})
	spec := specOf(t, "bounded")
	spec.Control = mute{}
	_, err := e.Prepare(t.Context(), spec)
	require.ErrorIs(t, err, errdefs.ErrUnavailable)
	require.ErrorContains(t, err, "was not ready within 1ns")
	require.Empty(t, leftovers(t, storeDir(t), testOwner))
}
