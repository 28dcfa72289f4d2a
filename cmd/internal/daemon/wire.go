package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"mcpx/artifacts"
	artifactindex "mcpx/artifacts/sqlite"
	"mcpx/images"
	"mcpx/orchestrator"
	"mcpx/orchestrator/client"
	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/job"
	jobstore "mcpx/orchestrator/job/sqlite"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/script"
	"mcpx/orchestrator/upstream"
	"mcpx/policies"
)

// Runtime is everything that carries out runs: the same in a daemon and in a
// command without one.
type Runtime struct {
	Config    Config
	Manager   *job.Manager
	Artifacts *artifacts.Store
	Engine    engine.Engine
	Policies  *policies.Document
	Direct    *orchestrator.Direct // the tools, for callers that are no scripts
	// Tools are the MCP servers that scripts may call.
	Tools *upstream.Manager

	log          *slog.Logger
	owner        *Owner
	orchestrator *orchestrator.Orchestrator
	closers      []io.Closer
}

// Options are what Open needs to know beside the settings.
type Options struct {
	Log *slog.Logger
	// Stdin, if set, is what scripts read, in place of their request's.
	Stdin io.Reader
}

// Open builds a Runtime on the state directory, and sweeps what dead processes
// left there. An engine that is down does not keep it from opening.
func Open(ctx context.Context, c Config, o Options) (*Runtime, error) {
	r := &Runtime{Config: c, log: o.Log}
	if err := os.MkdirAll(c.State, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	var err error
	var dead []*Owner
	if r.owner, dead, err = Acquire(c.State); err != nil {
		return nil, err
	}
	if err := r.build(o); err != nil {
		return nil, errors.Join(err, leaveAll(dead), r.release(true))
	}
	r.sweep(ctx, dead)
	return r, nil
}

// build makes the parts, those below first.
func (r *Runtime) build(o Options) error {
	c := r.Config
	var err error
	if r.Policies, err = LoadPolicies(c); err != nil {
		return err
	}
	if r.Engine, err = NewEngine(c, r.Policies, r.log); err != nil {
		return err
	}
	r.closers = append(r.closers, r.Engine)
	if o.Stdin != nil {
		r.Engine = fed{r.Engine, o.Stdin}
	}
	files := []string{filepath.Join(c.State, "artifacts", "index.db"), filepath.Join(c.State, "mcpx.db")}
	if err := makePrivate(files); err != nil {
		return err
	}
	index, err := artifactindex.Open(files[0])
	if err != nil {
		return err
	}
	r.closers = append(r.closers, index)
	if r.Artifacts, err = artifacts.Open(filepath.Join(c.State, "artifacts"), index, artifacts.Options{}); err != nil {
		return err
	}
	rows, err := jobstore.Open(files[1])
	if err != nil {
		return err
	}
	r.closers = append(r.closers, rows)
	if r.Tools, err = OpenTools(c, r.log); err != nil {
		return err
	}
	r.closers = append(r.closers, toolsCloser{r.Tools})
	config := r.orchestratorConfig()
	if c.Self != "" {
		parser := client.NewParser(client.ParserConfig{Command: []string{c.Self, ParserCommand}})
		r.closers = append(r.closers, parser)
		config.Launcher = parser
	}
	config.Audit, config.Tools, config.ConfigDir = rows, r.Tools, c.UserDir
	if config.AuditKey, err = auditKey(c.State); err != nil {
		return err
	}
	r.Direct = &orchestrator.Direct{Upstream: r.Tools, Policies: r.Policies, Audit: rows, AuditKey: config.AuditKey, Log: r.log}
	if r.orchestrator, err = orchestrator.New(config); err != nil {
		return err
	}
	r.Manager, err = job.New(job.Config{
		Runner: runner{r.orchestrator}, Store: rows, LogDir: filepath.Join(c.State, "logs"), Owner: r.owner.ID,
		Slots: c.Slots, Queue: c.Queue, Log: r.log,
	})
	return err
}

// makePrivate makes the files that are missing, readable for us alone: SQLite
// would heed the umask only, and the state directory may be somebody's own.
func makePrivate(files []string) error {
	for _, name := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return fmt.Errorf("state directory: %w", err)
		}
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return fmt.Errorf("state directory: %w", err)
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("state directory: %w", err)
		}
	}
	return nil
}

func (r *Runtime) orchestratorConfig() orchestrator.Config {
	return orchestrator.Config{
		Engine: r.Engine, Policies: r.Policies, Resolver: NewResolver(r.Config, r.Policies), Artifacts: r.Artifacts,
		RunDir: r.owner.RunDir(), Owner: r.owner.ID, Log: r.log,
		Interpreter: r.Config.Interpreter, CwdPolicy: r.Config.CwdPolicy,
	}
}

// runner is an Orchestrator as the job manager sees it.
type runner struct{ *orchestrator.Orchestrator }

func (r runner) Plan(ctx context.Context, req run.Request, by run.Caller) (job.Plan, error) {
	p, err := r.Orchestrator.Plan(ctx, req, by)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (r runner) Run(ctx context.Context, id string, p job.Plan, emit func(kind string, payload any) error) {
	r.Orchestrator.Run(ctx, id, p.(*orchestrator.Plan), emit)
}

// sweep removes what dead owners left: their runs end as lost, their containers
// and control directories go. An owner whose sweep does not succeed stays for a
// later one.
func (r *Runtime) sweep(ctx context.Context, dead []*Owner) {
	for _, o := range dead {
		if err := r.sweepOne(ctx, o); err != nil {
			r.log.Warn("what a dead process left could not be swept yet", "owner", o.ID, "error", err)
		}
	}
}

func (r *Runtime) sweepOne(ctx context.Context, o *Owner) error {
	lost, err := r.Manager.Recover(ctx, []string{o.ID})
	if err != nil {
		return errors.Join(err, o.Leave())
	}
	containers, err := r.Engine.Sweep(ctx, o.ID)
	if err != nil {
		return errors.Join(err, o.Leave())
	}
	if lost > 0 || containers > 0 {
		r.log.Info("swept what a dead process left", "owner", o.ID, "runs", lost, "containers", containers)
	}
	return o.Bury()
}

// Sweep looks for processes that died since the last time, and for those whose
// sweep did not succeed.
func (r *Runtime) Sweep(ctx context.Context) error {
	dead, err := r.owner.Dead()
	if err != nil {
		return err
	}
	r.sweep(ctx, dead)
	return nil
}

// What is kept of ended runs.
const (
	keepAge   = 7 * 24 * time.Hour
	keepCount = 50_000
	keepBytes = 2 << 30
)

// Tidy removes old runs, and artifacts whose time is up.
func (r *Runtime) Tidy(ctx context.Context) error {
	runs, err := r.Manager.Prune(ctx, job.Retention{Age: keepAge, Count: keepCount, Bytes: keepBytes})
	if err != nil {
		return fmt.Errorf("old runs: %w", err)
	}
	if runs > 0 {
		r.log.Info("removed old runs", "runs", runs)
	}
	if _, err := r.Artifacts.GC(ctx); err != nil {
		return fmt.Errorf("old artifacts: %w", err)
	}
	return nil
}

// Ready tells why no run could be carried out now; nil when one could.
func (r *Runtime) Ready(ctx context.Context) error {
	if err := r.Manager.Accepting(); err != nil {
		return err
	}
	_, err := r.Engine.Info(ctx)
	return err
}

// closeTimeout is how long Close waits for runs to end and containers to go.
const closeTimeout = 30 * time.Second

// Close ends the runs under way and frees everything. What could not be removed
// stays recorded for the next process on this state directory.
func (r *Runtime) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := errors.Join(r.Manager.Close(ctx), r.orchestrator.Close(ctx))
	return errors.Join(err, r.release(err == nil))
}

// release closes what was opened, the last first. Nothing of a clean owner is left.
func (r *Runtime) release(clean bool) error {
	var failed []error
	for i := len(r.closers) - 1; i >= 0; i-- {
		failed = append(failed, r.closers[i].Close())
	}
	if clean {
		failed = append(failed, r.owner.Bury())
	} else {
		failed = append(failed, r.owner.Leave())
	}
	return errors.Join(failed...)
}

// NewResolver looks scripts up where the settings say.
func NewResolver(c Config, p *policies.Document) script.Resolver {
	r := script.Resolver{UserDir: c.UserScripts, Extensions: p.Catalog().Extensions()}
	for _, path := range c.Scripts {
		if path == "" {
			r.Paths = append(r.Paths, nil)
			continue
		}
		r.Paths = append(r.Paths, &path)
	}
	return r
}

// facts are what the choice of a request's interpreter depends on.
func (r *Runtime) facts(req run.Request) (images.Facts, error) {
	found, err := NewResolver(r.Config, r.Policies).Resolve(req, req.Options.Cwd)
	if err != nil {
		return images.Facts{}, err
	}
	return images.Facts{Text: found.Text, FileName: found.Name, Runtime: req.Options.Runtime, Setting: r.Config.Interpreter}, nil
}

// ParserCommand is the hidden command that parses scripts on standard input.
const ParserCommand = "parse-scripts"
