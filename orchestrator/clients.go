package orchestrator

import (
	"context"
	"hash/maphash"
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
	files, err := a.clients.files(lang, a.servers(ctx))
	if err != nil {
		return err
	}
	job.Files = append(job.Files[:len(job.Files):len(job.Files)], files...)
	job.Env = withClient(job.Env, client.Env(lang))
	return nil
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
