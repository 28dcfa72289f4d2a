package orchestrator

import (
	"context"
	"hash/maphash"
	"path"
	"slices"
	"strings"
	"sync"

	"mcpx/orchestrator/client"
	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

// clients keeps what was generated last, for most runs get the same.
type clients struct {
	seed maphash.Seed

	mu   sync.Mutex
	kept map[uint64][]engine.File
}

// mostClients bounds the cache: languages times the tool sets in use.
const mostClients = 32

func newClients() *clients {
	return &clients{seed: maphash.MakeSeed(), kept: map[uint64][]engine.File{}}
}

// files is the client of a language for these servers.
func (c *clients) files(lang string, servers []tool.Server) ([]engine.File, error) {
	key := c.key(lang, servers)
	c.mu.Lock()
	files, ok := c.kept[key]
	c.mu.Unlock()
	if ok {
		return files, nil
	}
	files, err := client.Files(lang, servers, nil)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) >= mostClients {
		clear(c.kept)
	}
	c.kept[key] = files
	return files, nil
}

// key is different for whatever the generated files depend on.
func (c *clients) key(lang string, servers []tool.Server) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	write := func(parts ...string) {
		for _, part := range parts {
			h.WriteString(part)
			h.WriteByte(0)
		}
	}
	write(lang)
	for _, s := range servers {
		write(s.Name, s.Namespace, s.Description)
		for _, t := range s.Tools {
			write(t.Name, t.Function, t.Title, t.Description)
			h.Write(t.InputSchema)
			h.Write(t.OutputSchema)
		}
	}
	return h.Sum64()
}

// equip puts the client of the script's language beside it. An interpreter
// without one still has the endpoint, and is told so.
func (a *attempt) equip(ctx context.Context, job *engine.Job) error {
	lang, ok := client.Lang(a.plan.Choice.Interpreter.Kind)
	if !ok {
		return a.emit(run.EventLog, &run.Log{Level: "info", Code: "no_client",
			Message: "there is no client for " + a.plan.Runtime() + "; its scripts can speak HTTP to $MCPX_ENDPOINT"})
	}
	servers := a.servers(ctx)
	files, err := a.clients.files(lang, servers)
	if err != nil {
		return err
	}
	job.Files = slices.Concat(job.Files, files)
	job.Env = withClient(job.Env, client.Env(lang))
	return a.launch(ctx, job, servers)
}

// Launcher tells how a script is run that can't be run as it is.
type Launcher interface {
	Launch(context.Context, client.LaunchRequest) (launched client.Launched, ok bool, err error)
}

// inProcess parses here.
type inProcess struct{}

func (inProcess) Launch(_ context.Context, r client.LaunchRequest) (client.Launched, bool, error) {
	return client.Launch(r)
}

// launch has a snippet, or a module whose function is to be called, run by way
// of a launcher; other scripts run as they are.
func (a *attempt) launch(ctx context.Context, job *engine.Job, servers []tool.Server) error {
	launched, ok, err := a.config.Launcher.Launch(ctx, launchRequest(a.plan, servers))
	if err != nil || !ok {
		return err
	}
	job.Files[0].Data = launched.Text
	for _, file := range launched.Files {
		if !slices.ContainsFunc(job.Files, func(f engine.File) bool { return f.Path == file.Path }) {
			job.Files = append(job.Files, file)
		}
	}
	job.Argv = slices.Clone(job.Argv)
	job.Argv[len(a.plan.Choice.Argv)] = path.Join(engine.JobDir, launched.Entry)
	job.Env = withClient(job.Env, launched.Env)
	return nil
}

func launchRequest(p *Plan, servers []tool.Server) client.LaunchRequest {
	o := p.Request.Options
	return client.LaunchRequest{
		Kind: p.Choice.Interpreter.Kind, ScriptName: p.Choice.ScriptName, Text: p.Job.Files[0].Data,
		Servers: servers, Export: o.Export, CaptureConsole: o.CaptureConsole == nil || *o.CaptureConsole,
	}
}

// withClient adds the client's variables. A search path that the script has
// already stays behind the client's.
func withClient(env []string, client map[string]string) []string {
	out := make([]string, 0, len(env)+len(client))
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if own, ok := client[name]; ok && strings.HasSuffix(name, "PATH") {
			entry = name + "=" + own + ":" + value
			delete(client, name)
		}
		out = append(out, entry)
	}
	for name, value := range client {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}
