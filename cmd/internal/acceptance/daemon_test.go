// Package acceptance holds the whole product to its promises from outside: the
// built programs, a real engine, HTTP and the command line. RUN_ENGINE names
// the engine; without it there is nothing to run here and TestMain says so.
package acceptance_test

import (
	"bufio"
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
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/run"
)

// programs is where the built mcpx and mcpx-init lie.
var programs string

func TestMain(m *testing.M) {
	if os.Getenv("RUN_ENGINE") == "" {
		fmt.Println("acceptance: no engine asked for (RUN_ENGINE=docker)")
		return
	}
	os.Exit(withPrograms(m))
}

func withPrograms(m *testing.M) int {
	dir, err := os.MkdirTemp("", "mcpx-acceptance")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	programs = dir
	for name, flags := range map[string][]string{"mcpx": nil, "mcpx-init": {"-ldflags=-s -w"}} {
		args := append(append([]string{"build"}, flags...), "-o", filepath.Join(dir, name), "mcpx/cmd/"+name)
		build := exec.Command("go", args...)
		if name == "mcpx-init" {
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
		}
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", name, err, out)
			return 1
		}
	}
	return m.Run()
}

// daemon is a running `mcpx serve`.
type daemon struct {
	state  string
	socket string
	cmd    *exec.Cmd
	http   *http.Client
	errors *bytes.Buffer
	ended  chan error
}

// start runs a daemon over state and waits until it says ready.
func start(t *testing.T, state string, flags ...string) *daemon {
	t.Helper()
	d := &daemon{state: state, socket: filepath.Join(state, "m.sock"), errors: &bytes.Buffer{}, ended: make(chan error, 1)}
	d.cmd = exec.Command(filepath.Join(programs, "mcpx"), append([]string{"serve", "--state", state, "--listen", "unix://" + d.socket}, flags...)...)
	stderr, err := d.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, d.cmd.Start())
	t.Cleanup(func() { d.cmd.Process.Kill() }) // if the test did not get to its end
	ready := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "ready") {
				close(ready)
			}
			fmt.Fprintln(d.errors, lines.Text())
		}
		d.ended <- d.cmd.Wait()
	}()
	select {
	case <-ready:
	case err := <-d.ended:
		t.Fatalf("serve ended: %v\n%s", err, d.errors)
	}
	d.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.socket)
	}}}
	return d
}

// stop ends the daemon as an operator does, and holds it to a clean exit.
func (d *daemon) stop(t *testing.T) {
	t.Helper()
	d.http.CloseIdleConnections()
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, <-d.ended, "%s", d.errors)
}

// kill ends it as a power cut does.
func (d *daemon) kill(t *testing.T) {
	t.Helper()
	d.http.CloseIdleConnections()
	require.NoError(t, d.cmd.Process.Kill())
	<-d.ended
}

// begin starts a daemon in a fresh state directory, and at the end checks that
// nothing of it is left.
func begin(t *testing.T, flags ...string) *daemon {
	t.Helper()
	d := start(t, stateDir(t), flags...)
	t.Cleanup(func() {
		d.stop(t)
		d.nothingLeft(t)
	})
	return d
}

// stateDir is short: a socket's path has 107 bytes at most.
func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mx")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// nothingLeft looks for containers, control directories and half-written files.
func (d *daemon) nothingLeft(t *testing.T) {
	t.Helper()
	require.Empty(t, containers(t, d.state), "containers are left")
	require.Empty(t, glob(t, d.state, "run", "*", "*"), "control directories are left")
	require.Empty(t, glob(t, d.state, "artifacts", "tmp", "*"), "half-written artifacts are left")
}

func glob(t *testing.T, parts ...string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(parts...))
	require.NoError(t, err)
	return found
}

// containers lists what carries our label, in any state, and has something of
// this state directory mounted. Others may use the same engine.
func containers(t *testing.T, state string) []string {
	t.Helper()
	out, err := exec.Command("docker", "ps", "-a", "--no-trunc", "--filter", "label=mcpx.owner", "--format", "{{.ID}} {{.Mounts}}").Output()
	require.NoError(t, err)
	var ours []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, state) {
			ours = append(ours, strings.TrimSpace(line))
		}
	}
	return ours
}

// post sends a body to /v1/exec and returns the status and the answer.
func (d *daemon) post(t *testing.T, body any) (int, []byte) {
	t.Helper()
	text, err := json.Marshal(body)
	require.NoError(t, err)
	return d.send(t, text)
}

func (d *daemon) send(t *testing.T, text []byte) (int, []byte) {
	t.Helper()
	resp, err := d.http.Post("http://mcpx/v1/exec", "application/json", bytes.NewReader(text))
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, answer
}

// exec runs a request that must be carried out.
func (d *daemon) exec(t *testing.T, req run.Request) run.Result {
	t.Helper()
	status, answer := d.post(t, req)
	require.Equal(t, http.StatusOK, status, "%s", answer)
	var r run.Result
	require.NoError(t, json.Unmarshal(answer, &r))
	return r
}

func (d *daemon) source(t *testing.T, source string) run.Result {
	t.Helper()
	return d.exec(t, run.Request{Source: source})
}

// within bounds what a test waits for.
func within(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within %s", what, limit)
		case <-tick.C:
		}
	}
}
