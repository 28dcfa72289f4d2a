package enginetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

// patience bounds what has to happen in the end: nothing here takes this long
// unless the engine hangs.
const patience = 30 * time.Second

// slack is what an end may take beyond a script's own time, on a busy machine.
const slack = 10 * time.Second

// bench is the place of one case, which is clean when the case is over.
type bench struct {
	*testing.T
	Harness
	info  engine.Info
	owner string
}

func newBench(t *testing.T, h Harness, info engine.Info) *bench {
	b := &bench{T: t, Harness: h, info: info, owner: "test-" + strings.ToLower(rand.Text()[:12])}
	t.Cleanup(func() { require.Empty(t, h.Leftovers(t, b.owner), "left behind") })
	return b
}

// spec is a usual container for an interpreter, with a socket that listens.
func (b *bench) spec(interpreter string) engine.Spec {
	b.Helper()
	dir, err := os.MkdirTemp(b.Dir, "c")
	require.NoError(b, err)
	require.NoError(b, os.Chmod(dir, 0o755))
	b.Cleanup(func() { require.NoError(b, os.RemoveAll(dir)) })
	image, ok := b.Images[interpreter]
	require.True(b, ok, "the harness has no image with %s", interpreter)
	return engine.Spec{
		Owner: b.owner, Run: strings.ToLower(rand.Text()), Image: image, User: b.User,
		Limits:  engine.Limits{MemoryBytes: 192 << 20, CPUs: 2, Pids: 64, NoFile: 512, ShmBytes: 1 << 20},
		Network: engine.NetworkNone,
		Tmpfs:   []engine.Tmpfs{{Target: "/tmp", Bytes: 24 << 20}, {Target: "/work", Bytes: 4 << 20}},
		Outbox:  4 << 20, Workdir: "/",
		ControlDir: dir, Control: listen(b, dir),
	}
}

// prepare makes a container that is removed when the case is over.
func (b *bench) prepare(spec engine.Spec) engine.Container {
	b.Helper()
	c, err := b.Engine.Prepare(b.Context(), spec)
	require.NoError(b, err)
	b.Cleanup(func() { b.remove(c) })
	return c
}

// remove removes c. It is for cleanups too, when the test's context has ended.
func (b *bench) remove(c engine.Container) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), patience)
	defer cancel()
	require.NoError(b, c.Remove(ctx))
}

// entry is where shell puts a script.
const entry = engine.JobDir + "/main"

// outEnv names the outbox for scripts, and workEnv the working directory.
const (
	pathEnv = "PATH=/usr/local/bin:/usr/bin:/bin"
	outEnv  = "OUT=" + engine.OutboxDir
	tmpEnv  = "TMP=/tmp"
)

// script is a job for an interpreter's command line and a program's text.
func script(text string, argv ...string) engine.Job {
	return engine.Job{
		Argv:  append(argv, entry),
		Env:   []string{pathEnv, outEnv, tmpEnv},
		Cwd:   "/",
		Files: []engine.File{{Path: "main", Mode: 0o555, Data: []byte(text)}},
		Grace: 5 * time.Second,
	}
}

func shell(text string) engine.Job  { return script(text, "sh") }
func python(text string) engine.Job { return script(text, "python3") }

// result is what came of a job.
type result struct {
	engine.Exit
	stdout, stderr string
	took           time.Duration
}

// run runs job in c, and wants no error.
func (b *bench) run(c engine.Container, job engine.Job) result {
	b.Helper()
	r, err := b.try(b.Context(), c, job, nil)
	require.NoError(b, err)
	return r
}

// try runs job in c with what stdin yields.
func (b *bench) try(ctx context.Context, c engine.Container, job engine.Job, stdin io.Reader) (result, error) {
	var stdout, stderr bytes.Buffer
	began := time.Now()
	exit, err := c.Run(ctx, job, engine.IO{Stdin: stdin, Stdout: &stdout, Stderr: &stderr})
	return result{exit, stdout.String(), stderr.String(), time.Since(began)}, err
}

// sh runs a shell script in a container of its own.
func (b *bench) sh(text string) result {
	b.Helper()
	return b.run(b.prepare(b.spec("sh")), shell(text))
}

// exits wants a script to have ended by itself with code.
func (b *bench) exits(r result, code int) {
	b.Helper()
	require.Equal(b, engine.Exit{Code: code}, r.Exit, "stdout %q, stderr %q", r.stdout, r.stderr)
}

// within fails when do has not returned in time.
func (b *bench) within(limit time.Duration, what string, do func()) {
	b.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
		if b.Failed() { // then do ended where it failed
			b.FailNow()
		}
	case <-time.After(limit):
		b.Fatalf("%s: not within %s", what, limit)
	}
}
