package docker_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/docker"
	"mcpx/orchestrator/frame"
	"mcpx/orchestrator/run"
)

var update = flag.Bool("update", false, "rewrite testdata")

func TestNewRefusesWhatCannotWork(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o644))
	for _, c := range []struct {
		config docker.Config
		class  error
	}{
		{docker.Config{Host: "tcp://127.0.0.1:2375"}, errdefs.ErrInvalidArgument},
		{docker.Config{InitPath: filepath.Join(dir, "none")}, errdefs.ErrNotFound},
		{docker.Config{InitPath: dir}, errdefs.ErrInvalidArgument},
		{docker.Config{InitPath: plain}, errdefs.ErrInvalidArgument},
	} {
		_, err := docker.New(c.config)
		require.ErrorIs(t, err, c.class, "%+v", c.config)
	}
}

func TestInfoTellsWhatTheDaemonSays(t *testing.T) {
	d := newDaemon(t)
	d.on("GET", "/version", answer{200, map[string]any{"Version": "20.10", "Os": "linux", "Arch": "arm64"}, nil})
	info := map[string]any{
		"MemoryLimit": true, "PidsLimit": true, "CpuCfsQuota": true, "DefaultRuntime": "runc",
		"SecurityOptions": []string{"name=seccomp,profile=default"},
		"Runtimes":        map[string]any{"crun": map[string]any{}, "nvidia": map[string]any{}, "runc": map[string]any{}},
	}
	d.on("GET", "/info", answer{200, info, nil})
	e := d.engine(docker.Config{})
	got, err := e.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, engine.Info{
		Version: "20.10", OS: "linux", Arch: "arm64", Runtimes: []string{"runc", "crun", "nvidia"},
		MemoryLimit: true, PidsLimit: true, CPULimit: true, Seccomp: true, GPU: true, Mounts: true, Enforces: true,
	}, got)

	d.on("GET", "/info", answer{200, map[string]any{"SecurityOptions": []string{"name=seccomp,profile=unconfined"}}, nil})
	got, err = e.Info(t.Context())
	require.NoError(t, err)
	require.False(t, got.Seccomp || got.MemoryLimit || got.PidsLimit || got.CPULimit || got.GPU)
}

func TestOldDaemonIsRefused(t *testing.T) {
	d := newDaemon(t)
	d.version = "1.39"
	_, err := d.engine(docker.Config{}).EnsureImage(t.Context(), "i", engine.PullNever)
	require.ErrorContains(t, err, "requires API version 1.41")
	require.Empty(t, d.asked)
}

func TestEngineThatGoesAwayIsUnavailable(t *testing.T) {
	d := newDaemon(t)
	d.on("GET", "/version", hangUp())
	_, err := d.engine(docker.Config{}).Info(t.Context())
	require.ErrorIs(t, err, errdefs.ErrUnavailable)
	var told *run.Error
	require.ErrorAs(t, err, &told)
	require.Equal(t, run.CodeEngineUnavailable, told.Code)
	require.Contains(t, told.Message, strings.TrimPrefix(d.host, "unix://"))
	require.NotEmpty(t, told.Hint)
}

func TestMissingImageSaysHowToGetIt(t *testing.T) {
	pulling := func(lines string) answer {
		return answer{do: func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(lines)) }}
	}
	for name, c := range map[string]struct {
		ref   string
		pull  engine.PullPolicy
		pulls answer
		hint  string
		says  string
	}{
		"ours":             {"mcpx/python3:latest", engine.PullNever, answer{}, "`mcpx images build python3` makes it", "not on this machine"},
		"theirs":           {"alpine", engine.PullNever, answer{}, "docker pull alpine", "not on this machine"},
		"not in registry":  {"alpine", engine.PullMissing, failure(404, "pull access denied"), "docker pull alpine", "access denied"},
		"no registry":      {"alpine", engine.PullMissing, failure(500, "no such host"), "docker pull alpine", "no such host"},
		"fails in between": {"alpine", engine.PullMissing, pulling(`{"status":"Pulling"}` + "\n" + `{"error":"layer is gone"}`), "docker pull alpine", "layer is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			d.on("POST", "/images/create", c.pulls)
			_, err := d.engine(docker.Config{}).EnsureImage(t.Context(), c.ref, c.pull)
			require.ErrorIs(t, err, errdefs.ErrNotFound)
			var told *run.Error
			require.ErrorAs(t, err, &told)
			require.Equal(t, run.CodeImageNotFound, told.Code)
			require.Contains(t, told.Message, c.says)
			require.Contains(t, told.Hint, c.hint)
		})
	}
}

func TestPullFetchesWhatIsMissing(t *testing.T) {
	d := newDaemon(t)
	d.on("GET", "/images/alpine/json", failure(404, "no such image"), answer{200, map[string]any{"Id": "sha256:a"}, nil})
	d.on("POST", "/images/create", answer{200, map[string]any{"status": "done"}, nil})
	image, err := d.engine(docker.Config{}).EnsureImage(t.Context(), "alpine", engine.PullMissing)
	require.NoError(t, err)
	require.Equal(t, engine.Image{Digest: "sha256:a"}, image)
}

func TestPullIsBounded(t *testing.T) {
	d := newDaemon(t)
	d.on("POST", "/images/create", silence())
	_, err := d.engine(docker.Config{PullTimeout: 20 * time.Millisecond}).EnsureImage(t.Context(), "alpine", engine.PullMissing)
	require.ErrorContains(t, err, "no more than 20ms")
	require.False(t, errdefs.IsNotFound(err), "nobody knows whether it is there")
}

// TestRequestIsHardened shows all that docker is asked for, in testdata.
func TestRequestIsHardened(t *testing.T) {
	d := newDaemon(t)
	d.on("GET", "/images/v/json", answer{200, map[string]any{"Id": "sha256:v", "Config": map[string]any{
		"Volumes": map[string]any{"/data": map[string]any{}, "/mnt/rw": map[string]any{}},
	}}, nil})
	spec := specOf(t, waits)
	shared := t.TempDir()
	spec.Image, spec.ImageInit, spec.Outbox, spec.Workdir = "v", "", 5<<20, "/work"
	spec.Limits = engine.Limits{MemoryBytes: 64 << 20, CPUs: 1.5, Pids: 50, NoFile: 99, ShmBytes: 1 << 20}
	spec.Tmpfs = []engine.Tmpfs{{Target: "/tmp", Bytes: 1 << 20}, {Target: "/work", Bytes: 2 << 20, Mode: 0o700}}
	spec.Mounts = []engine.Mount{{Source: shared, Target: "/mnt/ro"}, {Source: shared, Target: "/mnt/rw", Writable: true}}
	e := d.engine(docker.Config{})
	c, err := e.Prepare(t.Context(), spec)
	require.NoError(t, err)
	require.NoError(t, c.Remove(t.Context()))

	var body map[string]any
	require.NoError(t, json.Unmarshal([]byte(d.body("POST /containers/create")), &body))
	dropZero(body)
	text, err := json.MarshalIndent(body, "", "  ")
	require.NoError(t, err)
	got := strings.NewReplacer(spec.ControlDir, "$CONTROL", shared, "$SHARED", initPathIn(string(text)), "$INIT").Replace(string(text)) + "\n"
	golden := filepath.Join("testdata", "create.json")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// initPathIn finds the stand-in for mcpx-init that the engine mounts.
func initPathIn(text string) string {
	before, _, _ := strings.Cut(text, `/init",`)
	return before[strings.LastIndex(before, `"`)+1:] + "/init"
}

// dropZero removes what is at Docker's default, so that the golden shows what is not.
func dropZero(m map[string]any) {
	for name, v := range m {
		switch v := v.(type) {
		case map[string]any:
			dropZero(v)
			if len(v) == 0 {
				delete(m, name)
			}
		case []any:
			for _, one := range v {
				if inner, ok := one.(map[string]any); ok {
					dropZero(inner)
				}
			}
		case nil:
			delete(m, name)
		default:
			if v == "" || v == 0.0 || (v == false && name != "Init" && name != "OomKillDisable") {
				delete(m, name)
			}
		}
	}
}

func TestKnownImageCostsNoQuestion(t *testing.T) {
	d := newDaemon(t)
	e := d.engine(docker.Config{})
	image, err := e.EnsureImage(t.Context(), "i", engine.PullNever)
	require.NoError(t, err)
	require.Equal(t, engine.Image{Digest: "sha256:i", Env: []string{"A=1"}, Init: "1", Size: 7}, image)
	spec := specOf(t, waits)
	spec.Image = image.Digest
	c, err := e.Prepare(t.Context(), spec)
	require.NoError(t, err)
	require.NoError(t, c.Remove(t.Context()))
	require.Equal(t, []string{
		"GET /images/i/json", "POST /containers/create", "POST /containers/c1/start", "DELETE /containers/c1",
	}, d.asked, "create and start are all that a start waits for")
}

func TestFailedPrepareRemovesWhatWasMade(t *testing.T) {
	left := []map[string]string{{"Id": "c1"}}
	errEnough := errors.New("enough")
	for name, c := range map[string]struct {
		set   func(*daemon)
		limit time.Duration
		class error
		says  string
	}{
		"start fails": {func(d *daemon) {
			d.on("POST", "/containers/c1/start", failure(400, "exec format error"))
		}, time.Minute, errdefs.ErrInvalidArgument, "exec format error"},
		"start is lost": {func(d *daemon) { d.on("POST", "/containers/c1/start", hangUp()) },
			time.Minute, errdefs.ErrUnavailable, "start container"},
		"create is lost": {func(d *daemon) {
			d.on("POST", "/containers/create", hangUp())
			d.on("GET", "/containers/json", answer{200, left, nil})
		}, time.Minute, errdefs.ErrUnavailable, "create container"},
		"init ends at once": {func(d *daemon) {
			d.on("POST", "/containers/c1/wait", answer{200, map[string]int{"StatusCode": 126}, nil})
			d.on("GET", "/containers/c1/json", stateOf(map[string]any{"ExitCode": 126, "Error": "no such file"}))
		}, time.Minute, errdefs.ErrFailedPrecondition, "code 126 (no such file)"},
		"init never connects": {func(d *daemon) { d.on("POST", "/containers/c1/wait", silence()) },
			400 * time.Millisecond, errdefs.ErrUnavailable, "not ready within 400ms"},
		"removed meanwhile": {func(d *daemon) {
			d.on("DELETE", "/containers/c1", failure(404, "no such container"))
		}, time.Minute, errdefs.ErrAborted, "somebody else"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			c.set(d)
			_, err := d.engine(docker.Config{StartTimeout: c.limit}).Prepare(t.Context(), specOf(t, nil))
			require.ErrorIs(t, err, c.class)
			require.ErrorContains(t, err, c.says)
			require.NotErrorIs(t, err, errEnough)
			require.Equal(t, 1, d.count("DELETE /containers/c1"))
		})
	}
}

func TestNameThatIsTakenLeavesTheOther(t *testing.T) {
	d := newDaemon(t)
	d.on("POST", "/containers/create", failure(409, "the name is in use"))
	_, err := d.engine(docker.Config{}).Prepare(t.Context(), specOf(t, waits))
	require.ErrorIs(t, err, errdefs.ErrConflict)
	require.Zero(t, d.count("DELETE /containers/c1")+d.count("GET /containers/json"))
}

func stateOf(state map[string]any) answer {
	return answer{200, map[string]any{"Id": "c1", "State": state}, nil}
}

func TestLostInitIsLookedInto(t *testing.T) {
	ended := answer{200, map[string]int{"StatusCode": 0}, nil}
	killed := engine.Exit{Code: -1, Signal: "SIGKILL"}
	for name, c := range map[string]struct {
		wait  []answer
		state answer
		exit  engine.Exit
		class error // nil: no error
		kills int
	}{
		"out of memory": {[]answer{ended}, stateOf(map[string]any{"OOMKilled": true, "ExitCode": 137}),
			engine.Exit{Code: -1, Signal: "SIGKILL", OOMKilled: true}, nil, 0},
		"killed from outside": {[]answer{ended}, stateOf(map[string]any{"ExitCode": 137}), killed, nil, 0},
		"init failed":         {[]answer{ended}, stateOf(map[string]any{"ExitCode": 2}), engine.Exit{Code: -1}, errdefs.ErrUnavailable, 0},
		"init lives":          {[]answer{silence(), ended}, stateOf(map[string]any{"ExitCode": 137}), engine.Exit{Code: -1}, errdefs.ErrUnavailable, 1},
		"removed":             {[]answer{failure(404, "no such container")}, answer{}, engine.Exit{Code: -1}, errdefs.ErrAborted, 0},
		"docker went away":    {[]answer{hangUp()}, answer{}, engine.Exit{Code: -1}, errdefs.ErrUnavailable, 0},
		"docker tells little": {[]answer{ended}, answer{200, map[string]any{}, nil}, engine.Exit{Code: -1}, errdefs.ErrInternal, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			d.on("POST", "/containers/c1/wait", c.wait...)
			d.on("GET", "/containers/c1/json", c.state)
			d.on("POST", "/containers/c1/kill", answer{status: 204})
			box := prepared(t, d, vanishes)
			exit, err := runTrue(t, box)
			if c.class == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, c.class)
			}
			require.Equal(t, c.exit, exit)
			require.Equal(t, c.kills, d.count("POST /containers/c1/kill"))
			require.Error(t, box.Collect(t.Context(), nil))
		})
	}
}

// TestWriteErrorIsToldBesideAFoundExit also shows that the other words about a
// lost init are not: the engine has found out.
func TestWriteErrorIsToldBesideAFoundExit(t *testing.T) {
	d := newDaemon(t)
	d.on("POST", "/containers/c1/wait", answer{200, map[string]int{"StatusCode": 0}, nil})
	d.on("GET", "/containers/c1/json", stateOf(map[string]any{"ExitCode": 137}))
	box := prepared(t, d, func(in *frame.Reader, out *frame.Writer) {
		vanishes(in, out)
		out.Write(frame.Stdout, []byte("x")) //nolint:errcheck // the engine sees what is wrong
		in.Next()                            //nolint:errcheck // the word to stop
	})
	exit, err := box.Run(t.Context(), engine.Job{Argv: []string{"true"}, Cwd: "/"}, engine.IO{Stdout: closed{}})
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.NotErrorIs(t, err, errdefs.ErrUnavailable)
	require.Equal(t, engine.Exit{Code: -1, Signal: "SIGKILL"}, exit)
}

// closed is a writer that takes nothing.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestDockerIsAskedForOOMOnlyWhenInitCannotSee(t *testing.T) {
	for name, c := range map[string]struct {
		kills  int
		events string
		asked  int
		oom    bool
	}{
		"init saw none":   {0, "", 0, false},
		"init saw some":   {2, "", 0, true},
		"docker saw none": {frame.OOMUnknown, "", 1, false},
		"docker saw some": {frame.OOMUnknown, `{"Action":"oom","status":"oom","id":"c1"}`, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			d.on("GET", "/events", answer{do: func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(c.events)) }})
			exit, err := runTrue(t, prepared(t, d, reports(frame.ExitMessage{Code: 7, OOMKills: c.kills})))
			require.NoError(t, err)
			require.Equal(t, engine.Exit{Code: 7, OOMKilled: c.oom}, exit)
			require.Equal(t, c.asked, d.count("GET /events"))
		})
	}
}

func TestRemoveTriesUntilTheContainerIsGone(t *testing.T) {
	busy, done := failure(500, "device or resource busy"), answer{status: 204}
	for name, c := range map[string]struct {
		deletes []answer
		wait    answer
		class   error
		tries   int
	}{
		"gone already":     {[]answer{failure(404, "no such container")}, answer{}, nil, 1},
		"busy for a while": {[]answer{busy, hangUp(), done}, answer{}, nil, 3},
		"somebody removes it": {[]answer{failure(409, "removal is in progress")},
			answer{200, map[string]int{"StatusCode": 0}, nil}, nil, 1},
		"somebody removed it": {[]answer{failure(409, "removal is in progress")}, failure(404, "no such container"), nil, 1},
		"never":               {[]answer{busy}, answer{}, errdefs.ErrInternal, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t)
			box := prepared(t, d, waits)
			d.on("DELETE", "/containers/c1", c.deletes...)
			d.on("POST", "/containers/c1/wait", c.wait)
			err := box.Remove(t.Context())
			if c.class == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, c.class)
			}
			require.Equal(t, c.tries, d.count("DELETE /containers/c1"))
		})
	}
}

func TestSweepGoesOnPastOneThatStays(t *testing.T) {
	d := newDaemon(t)
	d.on("GET", "/containers/json", answer{200, []map[string]string{{"Id": "c1"}, {"Id": "c2"}, {"Id": "c3"}}, nil})
	d.on("DELETE", "/containers/c2", failure(400, "it stays"))
	d.on("DELETE", "/containers/c3", answer{status: 204})
	n, err := d.engine(docker.Config{}).Sweep(t.Context(), "o")
	require.Equal(t, 2, n)
	require.ErrorContains(t, err, "it stays")
}
