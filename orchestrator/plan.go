package orchestrator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/images"
	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/script"
	"mcpx/policies"
)

// workDir is the private empty directory that every container has.
const workDir = "/work"

// Plan is all that is decided before anything is made.
type Plan struct {
	Submitted time.Time
	Request   run.Request
	Caller    run.Caller
	Script    script.Script
	Choice    images.Choice
	Grant     policies.Grant
	Workdir   script.Workdir
	// Warnings are told in the run's log, after its start.
	Warnings []run.Log
	// Spec and Job lack only what is known when the run begins: owner, id,
	// digest, control directory and the image's environment.
	Spec engine.Spec
	Job  engine.Job

	input []byte
}

// Plan decides what a request gets. It reads files and makes nothing. A
// request that is malformed or not granted is an error of the *run.Error kind.
func (o *Orchestrator) Plan(ctx context.Context, req run.Request, by run.Caller) (*Plan, error) {
	submitted := time.Now()
	opts, err := checkOptions(req.Options)
	if err != nil {
		return nil, err
	}
	resolver := o.config.Resolver
	resolver.NamesOnly = !by.SharedFs // a stranger's path must not read the daemon's files
	text, err := resolver.Resolve(req, req.Options.Cwd)
	if err != nil {
		return nil, err
	}
	choice, err := images.Choose(images.Facts{
		Text: text.Text, FileName: text.Name, Runtime: req.Options.Runtime, Setting: o.config.Interpreter,
		Permissions: req.Options.Permissions,
	}, o.config.Policies.Catalog())
	if err != nil {
		return nil, err
	}
	grant, err := o.config.Policies.Evaluate(policies.Facts{
		Interpreter: choice.Interpreter.Name, Principal: by.Principal, Permissions: req.Options.Permissions,
		Timeout: opts.timeout, Env: req.Options.Env,
	})
	if err != nil {
		return nil, err
	}
	workdir, err := script.ResolveWorkdir(o.cwdPolicy(req.Options), req.Options.Cwd, text, by.SharedFs || by.DeclaresFs, grant.MountsAllow, o.config.ConfigDir)
	if err != nil {
		return nil, err
	}
	p := &Plan{Submitted: submitted, Request: req, Caller: by, Script: text, Choice: choice, Grant: grant, Workdir: workdir, input: opts.stdin}
	p.Warnings = warnings(opts, choice, grant, workdir)
	p.Spec = specOf(grant, workdir)
	if p.Job, err = jobOf(p); err != nil {
		return nil, err
	}
	return p, o.checkExport(ctx, p)
}

// checkExport refuses an export that the script does not have, before anything
// is made for it.
func (o *Orchestrator) checkExport(ctx context.Context, p *Plan) error {
	if p.Request.Options.Export == "" {
		return nil
	}
	_, _, err := o.config.Launcher.Launch(ctx, launchRequest(p, nil))
	return err
}

func (o *Orchestrator) cwdPolicy(opts run.Options) string {
	for _, policy := range []string{opts.CwdPolicy, o.config.CwdPolicy} {
		if policy != "" {
			return policy
		}
	}
	return run.CwdCaller
}

// warnings are everything that turned out otherwise than the caller may think.
func warnings(opts settings, choice images.Choice, grant policies.Grant, workdir script.Workdir) []run.Log {
	all := slices.Concat(choice.Warnings, opts.warnings, workdir.Warnings)
	if len(grant.DroppedEnv) > 0 {
		all = append(all, run.Log{Level: "warn", Code: "env_dropped",
			Message: "the policy keeps these variables out: " + strings.Join(grant.DroppedEnv, ", ")})
	}
	return all
}

// specOf is the container that a grant describes.
func specOf(g policies.Grant, workdir script.Workdir) engine.Spec {
	spec := engine.Spec{
		Image: g.Image, User: g.User, Network: engine.Network(g.Network), Outbox: g.OutboxBytes, Workdir: "/",
		Limits: engine.Limits{MemoryBytes: g.MemoryBytes, CPUs: g.CPUs, Pids: g.Pids, NoFile: g.NoFile, ShmBytes: g.ShmBytes},
		Tmpfs:  []engine.Tmpfs{{Target: "/tmp", Bytes: g.TmpBytes}, {Target: workDir, Bytes: g.WorkBytes}},
	}
	switch {
	case workdir.Source != "":
		spec.Mounts = []engine.Mount{{Source: workdir.Source, Target: workdir.Inside, Writable: workdir.Writable}}
	case workdir.Inside != workDir:
		spec.Tmpfs = append(spec.Tmpfs, engine.Tmpfs{Target: workdir.Inside, Bytes: g.WorkBytes})
	}
	return spec
}

// jobOf is the command with its files; its environment comes with the image.
func jobOf(p *Plan) (engine.Job, error) {
	files, err := filesOf(p)
	if err != nil {
		return engine.Job{}, err
	}
	entry := path.Join(engine.JobDir, p.Choice.ScriptName)
	return engine.Job{
		Argv:  slices.Concat(p.Choice.Argv, []string{entry}, p.Request.Options.Args),
		Cwd:   p.Workdir.Inside,
		Files: files,
		Grace: p.Grant.Grace,
	}, nil
}

// filesOf is the script and its siblings.
func filesOf(p *Plan) ([]engine.File, error) {
	files := []engine.File{{Path: p.Choice.ScriptName, Mode: 0o555, Data: images.Normalize(p.Script.Text, p.Choice)}}
	for _, name := range slices.Sorted(maps.Keys(p.Request.Options.Files)) {
		field := fmt.Sprintf("options.files[%q]", name)
		if !cleanRelative(name) {
			return nil, invalid(field, "not a clean relative path", `write it as "lib/util.py"`)
		}
		if name == p.Choice.ScriptName {
			return nil, &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument, Field: field,
				Message: "the script itself has this name", Hint: "give the sibling another name"}
		}
		files = append(files, engine.File{Path: name, Mode: 0o444, Data: []byte(p.Request.Options.Files[name])})
	}
	return files, nil
}

// cleanRelative reports whether name stays below the directory that it is put in.
func cleanRelative(name string) bool {
	return name != "" && name != "." && path.Clean(name) == name && !path.IsAbs(name) &&
		name != ".." && !strings.HasPrefix(name, "../") && !strings.ContainsAny(name, "\x00\\") && len(name) < 1024
}

// environment is a script's whole environment: the image's, then the policy's
// and the caller's, then ours (WIRE 6). Later ones win.
func environment(image []string, p *Plan, id string) []string {
	env := map[string]string{}
	for _, entry := range image {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	maps.Copy(env, p.Grant.Env)
	maps.Copy(env, map[string]string{
		"MCPX_ENDPOINT": fmt.Sprintf("http://127.0.0.1:%d", engine.EndpointPort),
		"MCPX_SOCKET":   engine.SocketPath,
		"MCPX_RUN":      id,
		"MCPX_RUNTIME":  p.Runtime(),
		"MCPX_CWD":      p.Workdir.Inside,
		"MCPX_ENTRY":    path.Join(engine.JobDir, p.Choice.ScriptName),
	})
	if p.Grant.OutboxBytes > 0 {
		env["MCPX_OUTBOX"] = engine.OutboxDir
	}
	if session := p.Request.Options.Session; session != "" {
		env["MCPX_SESSION"] = session
	}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// Runtime is the kind of interpreter chosen.
func (p *Plan) Runtime() string { return p.Choice.Interpreter.Kind }

// Interpreter is the command line that runs the script, without its path.
func (p *Plan) Interpreter() string { return strings.Join(p.Choice.Argv, " ") }

// Facts are what a listing shows of a run before it has begun.
func (p *Plan) Facts() run.Summary {
	o := p.Request.Options
	return run.Summary{
		Label: o.Label, TaskHandle: o.TaskHandle, Session: o.Session,
		Runtime: p.Runtime(), Image: p.Grant.Image, Policy: p.Grant.Policy,
	}
}

func (p *Plan) stdin() io.Reader {
	if len(p.input) == 0 {
		return nil
	}
	return bytes.NewReader(p.input)
}
