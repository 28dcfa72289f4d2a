// Package orchestrator carries out one run, from a request to its end: it
// decides what the request gets (Plan), and has an engine do it (Run). It keeps
// no state between runs; who may run when is package job's matter.
package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpx/artifacts"
	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/script"
	"mcpx/orchestrator/sidecar"
	"mcpx/policies"
)

// Config is what an Orchestrator works with. All but the settings must be set.
type Config struct {
	Engine    engine.Engine
	Policies  *policies.Document
	Resolver  script.Resolver
	Artifacts *artifacts.Store
	// RunDir holds the control directories of this owner's runs.
	RunDir string
	// Owner marks what this life of the process makes (engine.LabelOwner).
	Owner string
	Log   *slog.Logger
	// Tools are what scripts may call; nil: nothing.
	Tools Tools
	// Audit keeps a record of tool calls; nil: none.
	Audit Auditor
	// Launcher finds out how a script of TypeScript is run (*client.Parser). It
	// parses a stranger's text, so it works in processes of its own; nil, for
	// tests, parses in this one.
	Launcher Launcher
	// AuditKey keys the hashes of calls' arguments.
	AuditKey []byte

	// Interpreter is the setting script.interpreter, a command line.
	Interpreter string
	// CwdPolicy is the setting script.cwd.
	CwdPolicy string
	// ConfigDir is the user's own configuration directory, for CwdPolicy config.
	ConfigDir string
}

// Orchestrator is safe for concurrent use.
type Orchestrator struct {
	config  Config
	dirs    atomic.Int64
	clients *clients

	mu       sync.Mutex
	leftover []engine.Container // whose removal failed
}

// removeTimeout bounds the removal of one container.
const removeTimeout = 30 * time.Second

// New makes the directory for control directories, which only this user may enter.
func New(c Config) (*Orchestrator, error) {
	if err := os.MkdirAll(c.RunDir, 0o700); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	if c.Launcher == nil {
		c.Launcher = inProcess{}
	}
	return &Orchestrator{config: c, clients: newClients()}, nil
}

// Run carries out plan under the given id and tells everything by emit, from
// the start frame to the end frame. It returns when nothing of the run is left.
// ctx ends the run; its cause (run.ErrCancelled …) says as what.
func (o *Orchestrator) Run(ctx context.Context, id string, p *Plan, emit func(kind string, payload any) error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &attempt{
		Orchestrator: o, id: id, plan: p,
		log:    o.config.Log.With("run", id),
		record: emit, cancel: cancel,
	}
	defer a.cleanUp(context.WithoutCancel(ctx)) // also when something here panics
	a.mark(&a.timings.Queued)
	exit, err := a.execute(ctx)
	a.finish(context.WithoutCancel(ctx), ending{cause: context.Cause(ctx), exit: exit, err: err}.decide())
}

// Close tries once more to remove what could not be removed.
func (o *Orchestrator) Close(ctx context.Context) error {
	return o.removeLeftover(ctx)
}

// attempt is one run under way.
type attempt struct {
	*Orchestrator
	id     string
	plan   *Plan
	log    *slog.Logger
	record func(kind string, payload any) error
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	timings   run.Timings
	started   time.Time
	ended     time.Time
	out       *output
	side      *sidecar.Sidecar
	dir       string
	container engine.Container
	value     json.RawMessage // what the script gave as its result
	cleaned   sync.Once
}

// emit records an event; a log that can't be written ends the run.
func (a *attempt) emit(kind string, payload any) error {
	if err := a.record(kind, payload); err != nil {
		err = fmt.Errorf("event log of run %s: %w", a.id, err)
		a.cancel(err)
		return err
	}
	return nil
}

// mark notes the moment of a phase, in milliseconds since the run was submitted.
func (a *attempt) mark(phase **float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ms := float64(time.Since(a.plan.Submitted).Microseconds()) / 1000
	*phase = &ms
}

// execute goes the line from image to the script's exit.
func (a *attempt) execute(ctx context.Context) (*engine.Exit, error) {
	image, err := a.config.Engine.EnsureImage(ctx, a.plan.Grant.Image, engine.PullPolicy(a.plan.Grant.Pull))
	a.announce(image)
	if err != nil {
		return nil, err
	}
	job := a.plan.Job
	job.Env = environment(image.Env, a.plan, a.id)
	if err := a.prepareBoth(ctx, image, &job); err != nil {
		return nil, err
	}
	a.mark(&a.timings.Prepared)
	return a.runScript(ctx, job)
}

// prepareBoth prepares the container and, meanwhile, what it is to run.
func (a *attempt) prepareBoth(ctx context.Context, image engine.Image, job *engine.Job) error {
	var equipped error
	var work sync.WaitGroup
	work.Go(func() { equipped = a.equip(ctx, job) })
	err := a.prepare(ctx, image)
	work.Wait()
	if err != nil {
		return err
	}
	return equipped
}

// announce emits the start frame and what Plan had to say.
func (a *attempt) announce(image engine.Image) {
	name := a.plan.Grant.Image
	if image.Digest != "" {
		name += "@" + image.Digest
	}
	a.emit(run.EventStart, &run.StartFrame{ //nolint:errcheck // emit has ended the run
		RunID: a.id, Runtime: a.plan.Runtime(), Interpreter: a.plan.Interpreter(), Image: name, Policy: a.plan.Grant.Policy,
	})
	for _, line := range a.plan.Warnings {
		a.emit(run.EventLog, &line) //nolint:errcheck // as above
	}
}

func (a *attempt) prepare(ctx context.Context, image engine.Image) error {
	a.dir = filepath.Join(a.config.RunDir, strconv.FormatInt(a.dirs.Add(1), 36))
	if err := os.Mkdir(a.dir, 0o755); err != nil {
		return fmt.Errorf("control directory: %w", err)
	}
	side, err := sidecar.Listen(a.dir, a.log)
	if err != nil {
		return err
	}
	a.side = side
	spec := a.plan.Spec
	spec.Owner, spec.Run, spec.ImageInit = a.config.Owner, a.id, image.Init
	spec.Image = image.Digest
	spec.ControlDir, spec.Control = a.dir, side
	a.container, err = a.config.Engine.Prepare(ctx, spec)
	return err
}

func (a *attempt) runScript(ctx context.Context, job engine.Job) (*engine.Exit, error) {
	grant := a.plan.Grant
	a.out = newOutput(grant.OutputKeep, grant.OutputLimit, a.emit,
		func() { a.mark(&a.timings.FirstOutput) },
		func() { a.cancel(run.ErrOutputLimit) })
	deadline := newDeadline(grant.Timeout, a.cancel)
	defer deadline.stop()

	release := a.side.Bind(ctx, sideRun{a})
	defer release()
	exit, err := a.container.Run(ctx, job, engine.IO{
		Stdin: a.plan.stdin(), Stdout: &a.out.stdout, Stderr: &a.out.stderr,
		Started: func() {
			deadline.start()
			a.began()
		},
	})
	a.over()
	release()
	if err != nil && a.out.failure() == nil {
		return nil, err // the engine lost sight of the script: exit says nothing
	}
	return &exit, nil
}

func (a *attempt) began() {
	a.mark(&a.timings.Started)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.started = time.Now()
}

func (a *attempt) over() {
	a.mark(&a.timings.Ended)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = time.Now()
}

// finish collects, tells the outcome, cleans up and closes the log. It runs
// whatever happened before.
func (a *attempt) finish(ctx context.Context, o outcome) {
	if a.out != nil {
		a.out.close() //nolint:errcheck // emit has ended the run
	}
	a.collect(ctx)
	a.conclude(o)
	a.cleanUp(ctx)
	a.emit(run.EventEnd, a.end(o)) //nolint:errcheck // the job manager records the lost log
}

// conclude emits the result frame, or the error frame.
func (a *attempt) conclude(o outcome) {
	if o.problem != nil {
		a.emit(run.EventError, o.problem) //nolint:errcheck // emit has ended the run
		return
	}
	a.emit(run.EventResult, &run.ResultFrame{Value: a.result()}) //nolint:errcheck // as above
}

// result is what the script gave as its value, else stdout when that is JSON.
func (a *attempt) result() json.RawMessage {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.value != nil {
		return a.value
	}
	return a.out.result()
}

func (a *attempt) end(o outcome) *run.End {
	a.mu.Lock()
	defer a.mu.Unlock()
	end := &run.End{
		RunID: a.id, State: o.state, ExitCode: o.exitCode, Signal: o.signal,
		TimedOut: o.state == run.TimedOut, OOMKilled: o.oom, Timings: a.timings,
	}
	if a.out != nil {
		end.StdoutBytes, end.StderrBytes = a.out.stdout.written, a.out.stderr.written
		end.DroppedBytes = a.out.dropped()
		end.Truncated = end.DroppedBytes > 0
	}
	if !a.started.IsZero() {
		end.DurationMs = a.ended.Sub(a.started).Milliseconds()
	}
	return end
}

// cleanUp removes the container, then what it had mounted. It is idempotent.
func (a *attempt) cleanUp(ctx context.Context) { a.cleaned.Do(func() { a.removeAll(ctx) }) }

func (a *attempt) removeAll(ctx context.Context) {
	if a.container != nil {
		a.remove(ctx)
	}
	if a.config.Tools != nil {
		a.config.Tools.EndRun(a.id)
	}
	if a.side != nil {
		a.side.Close() //nolint:errcheck // the socket goes with its directory
	}
	if a.dir != "" {
		if err := os.RemoveAll(a.dir); err != nil {
			a.log.Error("control directory is left", "dir", a.dir, "error", err)
		}
	}
}

func (a *attempt) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	err := a.container.Remove(ctx)
	if err == nil {
		a.mark(&a.timings.Removed)
		if err := a.removeLeftover(ctx); err != nil {
			a.log.Warn("containers are still left", "error", err)
		}
		return
	}
	a.log.Error("container is left", "container", a.container.ID(), "error", err)
	a.Orchestrator.mu.Lock()
	defer a.Orchestrator.mu.Unlock()
	a.leftover = append(a.leftover, a.container)
}

// removeLeftover retries what could not be removed when its run ended.
func (o *Orchestrator) removeLeftover(ctx context.Context) error {
	o.mu.Lock()
	again := o.leftover
	o.leftover = nil
	o.mu.Unlock()
	var failed []error
	for _, c := range again {
		if err := c.Remove(ctx); err != nil {
			failed = append(failed, fmt.Errorf("container %s: %w", c.ID(), err))
			o.mu.Lock()
			o.leftover = append(o.leftover, c)
			o.mu.Unlock()
		}
	}
	return errors.Join(failed...)
}
