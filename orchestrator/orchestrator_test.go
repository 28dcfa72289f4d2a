package orchestrator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
	"mcpx/artifacts/sqlite"
	"mcpx/orchestrator"
	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/script"
	"mcpx/policies"
)

// scripted is an engine whose containers do what a test says. What real
// containers do is enginetest's matter; here it is about the line of a run.
type scripted struct {
	imageErr   error
	prepareErr error
	run        func(ctx context.Context, job engine.Job, stdio engine.IO) (engine.Exit, error)
	outbox     func(engine.Outbox) error
	removeErr  error

	mu      sync.Mutex
	spec    engine.Spec
	job     engine.Job
	made    int
	removed int
}

func (s *scripted) Name() string                               { return "scripted" }
func (s *scripted) Info(context.Context) (engine.Info, error)  { return engine.Info{}, nil }
func (s *scripted) Sweep(context.Context, string) (int, error) { return 0, nil }
func (s *scripted) Close() error                               { return nil }
func (s *scripted) ID() string                                 { return "c1" }
func (s *scripted) EnsureImage(context.Context, string, engine.PullPolicy) (engine.Image, error) {
	return engine.Image{Digest: "sha256:abc", Env: []string{"PATH=/usr/bin", "LANG=C.UTF-8"}}, s.imageErr
}

func (s *scripted) Prepare(_ context.Context, spec engine.Spec) (engine.Container, error) {
	if s.prepareErr != nil {
		return nil, s.prepareErr
	}
	s.spec = spec
	s.made++
	return s, nil
}

func (s *scripted) Run(ctx context.Context, job engine.Job, stdio engine.IO) (engine.Exit, error) {
	s.job = job
	stdio.Started()
	return s.run(ctx, job, stdio)
}

func (s *scripted) Collect(_ context.Context, sink engine.Outbox) error {
	if s.outbox == nil {
		return nil
	}
	return s.outbox(sink)
}

func (s *scripted) Remove(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removeErr != nil {
		return s.removeErr
	}
	s.removed++
	return nil
}

// bench is an orchestrator over a scripted engine, with its event log.
type bench struct {
	*orchestrator.Orchestrator
	engine *scripted
	dir    string
	events []run.Event
	refuse func(kind string) error
}

func newBench(t *testing.T, e *scripted) *bench {
	return newBenchWith(t, e, func(*orchestrator.Config) {})
}

func newBenchWith(t *testing.T, e *scripted, change func(*orchestrator.Config)) *bench {
	dir := t.TempDir()
	index, err := sqlite.Open(filepath.Join(dir, "index.db"))
	require.NoError(t, err)
	t.Cleanup(func() { index.Close() })
	store, err := artifacts.Open(filepath.Join(dir, "artifacts"), index, artifacts.Options{})
	require.NoError(t, err)
	runDir := filepath.Join(dir, "run")
	config := orchestrator.Config{
		Engine: e, Policies: policies.Default(), Resolver: script.Resolver{}, Artifacts: store,
		RunDir: runDir, Owner: "o1", Log: slog.New(slog.DiscardHandler),
	}
	change(&config)
	o, err := orchestrator.New(config)
	require.NoError(t, err)
	return &bench{Orchestrator: o, engine: e, dir: runDir}
}

// do runs a request to its end and folds the events.
func (b *bench) do(t *testing.T, ctx context.Context, req run.Request) run.Result {
	t.Helper()
	plan, err := b.Plan(ctx, req, run.Caller{Principal: "local"})
	require.NoError(t, err)
	var mu sync.Mutex
	var fold run.Fold
	b.Run(ctx, "run-1", plan, func(kind string, payload any) error {
		mu.Lock()
		defer mu.Unlock()
		if b.refuse != nil {
			if err := b.refuse(kind); err != nil {
				return err
			}
		}
		e := run.Event{Type: kind, Seq: int64(len(b.events) + 1), TS: time.Now(), Payload: payload}
		b.events = append(b.events, e)
		fold.Add(e)
		return nil
	})
	left, err := os.ReadDir(b.dir)
	require.NoError(t, err)
	require.Empty(t, left, "control directories are left")
	return fold.Result()
}

func (b *bench) kinds() string {
	var kinds []string
	for _, e := range b.events {
		kinds = append(kinds, e.Type)
	}
	return strings.Join(kinds, " ")
}

func prints(out string, code int) func(context.Context, engine.Job, engine.IO) (engine.Exit, error) {
	return func(_ context.Context, _ engine.Job, stdio engine.IO) (engine.Exit, error) {
		_, err := io.WriteString(stdio.Stdout, out)
		return engine.Exit{Code: code}, err
	}
}

// untilStopped is a script that ends only when it is told to.
func untilStopped(ctx context.Context, _ engine.Job, _ engine.IO) (engine.Exit, error) {
	<-ctx.Done()
	return engine.Exit{Code: -1, Signal: "SIGTERM"}, nil
}

const hello = "#!/bin/bash\necho hi"

func TestFramesComeInTheOrderOfTheWire(t *testing.T) {
	b := newBench(t, &scripted{run: prints("hi\n", 0), outbox: func(sink engine.Outbox) error {
		w, err := sink.File("a.txt", 0o644, 3)
		if err != nil {
			return err
		}
		if _, err := w.Write([]byte("abc")); err != nil {
			return err
		}
		return errors.Join(w.Commit(), sink.Skip("pipe", "a fifo"))
	}})
	r := b.do(t, t.Context(), run.Request{Source: hello})
	require.Equal(t, "start stdout artifact skip result end", b.kinds())
	require.Equal(t, run.Exited, r.State)
	require.Equal(t, 0, *r.ExitCode)
	require.Equal(t, "hi\n", r.Stdout)
	require.Equal(t, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", r.Artifacts[0].SHA256)
	require.Equal(t, "mcpx/bash@sha256:abc", r.Image)
	for _, phase := range []*float64{r.Timings.Queued, r.Timings.Prepared, r.Timings.Started, r.Timings.FirstOutput,
		r.Timings.Ended, r.Timings.Collected, r.Timings.Removed} {
		require.NotNil(t, phase)
	}
	require.Equal(t, 1, b.engine.removed)
}

func TestEveryEndingRemovesTheContainer(t *testing.T) {
	for name, c := range map[string]struct {
		engine *scripted
		state  run.State
		code   string
		kinds  string
	}{
		"image is missing": {&scripted{imageErr: &run.Error{Code: run.CodeImageNotFound, Class: errdefs.ErrNotFound}},
			run.Failed, run.CodeImageNotFound, "start error end"},
		"container can't be made": {&scripted{prepareErr: fmt.Errorf("docker: %w", errdefs.ErrUnavailable)},
			run.Failed, run.CodeEngineUnavailable, "start error end"},
		"engine goes away": {&scripted{run: func(context.Context, engine.Job, engine.IO) (engine.Exit, error) {
			return engine.Exit{}, fmt.Errorf("docker: %w", errdefs.ErrUnavailable)
		}}, run.Failed, run.CodeEngineUnavailable, "start error end"},
		"script exits 3": {&scripted{run: prints("", 3)}, run.Exited, run.CodeExitStatus, "start error end"},
		"outbox is lost": {&scripted{run: prints("", 0), outbox: func(engine.Outbox) error { return errors.New("init died") }},
			run.Exited, "", "start log result end"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.engine)
			r := b.do(t, t.Context(), run.Request{Source: hello})
			require.Equal(t, c.state, r.State)
			require.Equal(t, c.kinds, b.kinds())
			if c.code != "" {
				require.Equal(t, c.code, r.Error.Code)
			}
			require.Equal(t, c.engine.made, c.engine.removed)
		})
	}
}

func TestTimeLimitCountsFromTheScriptsStart(t *testing.T) {
	b := newBench(t, &scripted{run: untilStopped})
	r := b.do(t, t.Context(), run.Request{Source: hello, Options: run.Options{Timeout: "30ms"}})
	require.Equal(t, run.TimedOut, r.State)
	require.True(t, r.TimedOut)
	require.Nil(t, r.ExitCode)
	require.Equal(t, run.CodeTimedOut, r.Error.Code)
}

func TestCancelTellsItsCause(t *testing.T) {
	for cause, code := range map[error]string{
		run.ErrCancelled: run.CodeCancelled, run.ErrClientGone: run.CodeCancelled, run.ErrShutdown: run.CodeShuttingDown,
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		b := newBench(t, &scripted{run: func(ctx context.Context, job engine.Job, stdio engine.IO) (engine.Exit, error) {
			cancel(cause)
			return untilStopped(ctx, job, stdio)
		}})
		r := b.do(t, ctx, run.Request{Source: hello})
		require.Equal(t, run.Cancelled, r.State)
		require.Equal(t, code, r.Error.Code)
		require.Equal(t, 1, b.engine.removed)
	}
}

func TestTooMuchOutputEndsTheRun(t *testing.T) {
	b := newBench(t, &scripted{run: func(ctx context.Context, _ engine.Job, stdio engine.IO) (engine.Exit, error) {
		block := make([]byte, 1<<20)
		for ctx.Err() == nil {
			if _, err := stdio.Stdout.Write(block); err != nil {
				return engine.Exit{}, err
			}
		}
		return engine.Exit{Code: -1, Signal: "SIGKILL"}, nil
	}})
	r := b.do(t, t.Context(), run.Request{Source: hello})
	require.Equal(t, run.OutputLimit, r.State)
	require.True(t, r.Truncated)
	require.Equal(t, r.StdoutBytes, r.DroppedBytes+int64(len(decoded(t, r))))
}

func decoded(t *testing.T, r run.Result) []byte {
	t.Helper()
	require.Empty(t, r.StdoutEncoding, "NUL bytes are valid UTF-8")
	return []byte(r.Stdout)
}

func TestLogThatCannotBeWrittenEndsTheRun(t *testing.T) {
	b := newBench(t, &scripted{run: func(ctx context.Context, job engine.Job, stdio engine.IO) (engine.Exit, error) {
		io.WriteString(stdio.Stdout, "x")
		return untilStopped(ctx, job, stdio)
	}})
	b.refuse = func(kind string) error {
		if kind == run.EventStdout {
			return errors.New("no space left on device")
		}
		return nil
	}
	r := b.do(t, t.Context(), run.Request{Source: hello})
	require.Equal(t, run.Failed, r.State)
	require.Contains(t, r.Error.Message, "no space left")
	require.Equal(t, 1, b.engine.removed)
}

func TestContainerThatStaysIsRetried(t *testing.T) {
	e := &scripted{run: prints("", 0), removeErr: errors.New("device busy")}
	b := newBench(t, e)
	r := b.do(t, t.Context(), run.Request{Source: hello})
	require.Nil(t, r.Timings.Removed)
	require.Error(t, b.Close(t.Context()))
	e.removeErr = nil
	require.NoError(t, b.Close(t.Context()))
	require.Equal(t, 1, e.removed)
}

func TestOneRefusedFileDoesNotLoseTheOthers(t *testing.T) {
	b := newBench(t, &scripted{run: prints("", 0), outbox: func(sink engine.Outbox) error {
		for name, size := range map[string]int64{"big": 65 << 20, "small": 1} {
			w, err := sink.File(name, 0o644, size)
			if err != nil {
				return err
			}
			if w == nil {
				continue
			}
			if _, err := w.Write(make([]byte, min(size, 1))); err != nil {
				return err
			}
			if err := w.Commit(); err != nil {
				return err
			}
		}
		return nil
	}})
	r := b.do(t, t.Context(), run.Request{Source: hello})
	require.Len(t, r.Artifacts, 1)
	require.Equal(t, "small", r.Artifacts[0].Name)
	require.Len(t, r.Skipped, 1)
	require.Equal(t, "big", r.Skipped[0].Name)
	require.NotEmpty(t, r.Skipped[0].Reason)
}

func TestEnvironmentIsExact(t *testing.T) {
	b := newBench(t, &scripted{run: prints("", 0)})
	b.do(t, t.Context(), run.Request{Source: hello, Options: run.Options{Env: map[string]string{"A": "1"}, Session: "s"}})
	require.Equal(t, []string{
		"A=1", "LANG=C.UTF-8", "MCPX_CLIENT=/run/mcpx/job/client/mcpx.sh", "MCPX_CWD=/work", "MCPX_ENDPOINT=http://127.0.0.1:7717", "MCPX_ENTRY=/run/mcpx/job/main.sh",
		"MCPX_OUTBOX=/outbox", "MCPX_RUN=run-1", "MCPX_RUNTIME=bash", "MCPX_SESSION=s", "MCPX_SOCKET=/run/mcpx/mcpx.sock", "PATH=/usr/bin",
	}, b.engine.job.Env)
}

// A script's own search path stays, behind the client's.
func TestPythonFindsItsClientAndWhatItBrings(t *testing.T) {
	b := newBench(t, &scripted{run: prints("", 0)})
	b.do(t, t.Context(), run.Request{Source: "#!/usr/bin/env python3\n", Options: run.Options{Env: map[string]string{"PYTHONPATH": "/opt/lib"}}})
	require.Contains(t, b.engine.job.Env, "PYTHONPATH=/run/mcpx/job/client/python:/opt/lib")
	require.Contains(t, b.engine.job.Env, "MCPX_CLIENT=/run/mcpx/job/client/python")
}

func TestInterpreterWithoutAClientIsTold(t *testing.T) {
	b := newBench(t, &scripted{run: prints("", 0)})
	r := b.do(t, t.Context(), run.Request{Source: "#!/usr/bin/env ruby\n"})
	require.Equal(t, "no_client", r.Logs[0].Code)
}

func TestBadRequestsNameTheField(t *testing.T) {
	b := newBench(t, &scripted{})
	for name, c := range map[string]struct {
		req   run.Request
		field string
		code  string
	}{
		"timeout":      {run.Request{Source: hello, Options: run.Options{Timeout: "soon"}}, "options.timeout", run.CodeInvalidOption},
		"zero timeout": {run.Request{Source: hello, Options: run.Options{Timeout: "0s"}}, "options.timeout", run.CodeInvalidOption},
		"output":       {run.Request{Source: hello, Options: run.Options{Output: "xml"}}, "options.output", run.CodeInvalidOption},
		"stdin":        {run.Request{Source: hello, Options: run.Options{Stdin: "*", StdinEncoding: "base64"}}, "options.stdin", run.CodeInvalidOption},
		"arg with NUL": {run.Request{Source: hello, Options: run.Options{Args: []string{"a", "b\x00"}}}, "options.args[1]", run.CodeInvalidOption},
		"long arg":     {run.Request{Source: hello, Options: run.Options{Args: []string{strings.Repeat("x", 200<<10)}}}, "options.args[0]", run.CodeTooLarge},
		"phases":       {run.Request{Source: hello, Options: run.Options{Phases: &run.Phases{}}}, "options.phases", run.CodeUnsupportedOption},
		"export of sh": {run.Request{Source: hello, Options: run.Options{Export: "f"}}, "options.export", run.CodeUnsupportedOption},
		"no export":    {run.Request{Source: "export const a = () => 1", Options: run.Options{Export: "f"}}, "options.export", run.CodeInvalidOption},
		"sibling":      {run.Request{Source: hello, Options: run.Options{Files: map[string]string{"../x": ""}}}, `options.files["../x"]`, run.CodeInvalidOption},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.Plan(t.Context(), c.req, run.Caller{})
			var known *run.Error
			require.ErrorAs(t, err, &known)
			require.Equal(t, c.field, known.Field)
			require.Equal(t, c.code, known.Code)
		})
	}
}

func TestPlanIsGolden(t *testing.T) {
	b := newBench(t, &scripted{})
	for name, req := range map[string]run.Request{
		"bash":   {Source: hello, Options: run.Options{Args: []string{"a b"}, Timeout: "3s"}},
		"python": {Source: "#!/usr/bin/env python3\nprint(1)", Options: run.Options{Files: map[string]string{"lib/util.py": "x = 1"}}},
		"deno":   {Source: "console.log(1)", Options: run.Options{Cwd: "/home/someone"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := b.Plan(t.Context(), req, run.Caller{})
			require.NoError(t, err)
			got, err := json.MarshalIndent(struct {
				Spec     engine.Spec
				Job      engine.Job
				Warnings []run.Log
			}{p.Spec, p.Job, p.Warnings}, "", "  ")
			require.NoError(t, err)
			golden(t, filepath.Join("testdata", "plan", name+".json"), append(got, '\n'))
		})
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, fs.FileMode(0o644)))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}
