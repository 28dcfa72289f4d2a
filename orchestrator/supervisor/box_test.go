package supervisor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
	"mcpx/orchestrator/frame"
	"mcpx/orchestrator/frame/upgrade"
	"mcpx/orchestrator/supervisor/inittest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "stage" {
		fmt.Fprintln(os.Stderr, enter(os.Args[2]))
		os.Exit(1)
	}
	if len(os.Args) > 2 && os.Args[1] == "script" {
		if err := scripts()[os.Args[2]](os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// patience is how long something may take that takes no time. It is far below
// what the scripts here would sleep.
const patience = 30 * time.Second

// box is a real mcpx-init as the first process of namespaces of its own, and
// the daemon's end of its connection.
type box struct {
	*link.Link
	t      *testing.T
	stage  stage
	cmd    *exec.Cmd
	exited chan struct{} // init has
	stderr bytes.Buffer
}

// open starts a box and greets its init.
func open(t *testing.T, change func(*stage)) *box {
	t.Helper()
	b := &box{t: t, exited: make(chan struct{})}
	b.stage = stage{UID: boxUID, Init: inittest.Build(t), Test: self(t)}
	for _, dir := range []*string{&b.stage.Root, &b.stage.Control, &b.stage.Outbox, &b.stage.Cgroup} {
		*dir = t.TempDir()
	}
	require.NoError(t, os.Chmod(b.stage.Outbox, 0o777))
	if change != nil {
		change(&b.stage)
	}
	text, err := json.Marshal(b.stage)
	require.NoError(t, err)
	control := serve(t, b.stage.Control)
	b.start(exec.Command(b.stage.Test, "stage", string(text)))
	b.accept(control)
	return b
}

// openOnHost starts an init that is not the first process.
func openOnHost(t *testing.T) *box {
	t.Helper()
	b := &box{t: t, exited: make(chan struct{})}
	b.stage = stage{Control: t.TempDir(), Outbox: t.TempDir()}
	control := serve(t, b.stage.Control)
	cmd := exec.Command(inittest.Build(t), "host", filepath.Join(b.stage.Control, engine.SocketName), b.stage.Outbox, "127.0.0.1:0")
	b.start(cmd)
	b.accept(control)
	return b
}

func self(t *testing.T) string {
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

func (b *box) start(cmd *exec.Cmd) {
	b.cmd = cmd
	cmd.Stderr = &b.stderr
	if cmd.Args[1] == "stage" {
		cmd.SysProcAttr = namespaces()
	}
	// Pdeathsig is the death of the thread that forks.
	started := make(chan error)
	go func() {
		defer close(b.exited)
		lockThread(cmd)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() //nolint:errcheck // init's exit code tells nothing
		}
	}()
	require.NoError(b.t, <-started)
	b.t.Cleanup(func() {
		if b.Link != nil {
			b.Close()
		} else {
			cmd.Process.Kill() //nolint:errcheck // it may have ended
		}
		b.gone()
	})
}

func (b *box) accept(control <-chan net.Conn) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	select {
	case conn := <-control:
		var err error
		b.Link, err = link.New(ctx, conn, link.Config{})
		require.NoError(b.t, err)
	case <-b.exited:
		b.t.Fatalf("init ended: %s", b.stderr.String())
	case <-ctx.Done():
		b.t.Fatal("init does not connect")
	}
}

// gone waits for init's end.
func (b *box) gone() {
	b.t.Helper()
	select {
	case <-b.exited:
	case <-time.After(patience):
		b.t.Error("init does not end")
	}
}

// serve is the run's socket: init's upgrade, and one page for the script.
func serve(t *testing.T, dir string) <-chan net.Conn {
	path := filepath.Join(dir, engine.SocketName)
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o777))
	control := make(chan net.Conn, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+frame.ControlPath, func(w http.ResponseWriter, r *http.Request) {
		if conn, err := upgrade.Accept(w, r); err == nil {
			control <- conn
		}
	})
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }) //nolint:errcheck
	server := &http.Server{Handler: mux}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	return control
}

// outcome is what came of a job.
type outcome struct {
	engine.Exit
	out, err string
}

// job is one to run in a box.
type job struct {
	argv  []string
	env   []string
	cwd   string
	stdin io.Reader
	grace time.Duration
	// on stops the script when it has written this.
	on string
}

func sh(text string) job { return job{argv: []string{"/bin/sh", "-c", text}} }

// script is one of this binary's own.
func script(name string, args ...string) job {
	return job{argv: append([]string{"/test", "script", name}, args...)}
}

func (b *box) do(j job) outcome {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var stderr bytes.Buffer
	stdout := watch{for_: j.on, seen: stop}
	if j.cwd == "" {
		j.cwd = "/"
	}
	if j.env == nil {
		j.env = []string{"PATH=/usr/bin:/bin"}
	}
	began := time.Now()
	exit, err := b.Run(ctx, engine.Job{Argv: j.argv, Env: j.env, Cwd: j.cwd, Grace: j.grace},
		engine.IO{Stdin: j.stdin, Stdout: &stdout, Stderr: &stderr})
	require.NoError(b.t, err)
	require.Less(b.t, time.Since(began), patience, "it was not ended, but waited for: %s%s", &stdout.text, &stderr)
	b.alone()
	return outcome{exit, stdout.text.String(), stderr.String()}
}

// alone sees that no process but init is left when the exit is reported.
func (b *box) alone() {
	b.t.Helper()
	if b.stage.Root == "" {
		return
	}
	mine, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", b.cmd.Process.Pid))
	require.NoError(b.t, err)
	entries, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	require.NoError(b.t, err)
	for _, e := range entries {
		if ns, _ := os.Readlink(e); ns == mine {
			require.Contains(b.t, e, fmt.Sprintf("/%d/", b.cmd.Process.Pid), "a process is left")
		}
	}
}

// watch keeps output and tells when for_ has come.
type watch struct {
	text bytes.Buffer
	for_ string
	seen func()
	once sync.Once
}

func (w *watch) Write(p []byte) (int, error) {
	w.text.Write(p)
	if w.for_ != "" && strings.Contains(w.text.String(), w.for_) {
		w.once.Do(w.seen)
	}
	return len(p), nil
}

// do runs a job in a box of its own.
func do(t *testing.T, j job) outcome {
	t.Helper()
	return open(t, nil).do(j)
}
