// Package upstream keeps the MCP servers that scripts call: it starts them
// when they are needed, knows their tools without starting them, and answers
// every call with the server's result or a typed error.
package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

// DefaultMaxResponse caps the bytes of one answer.
const DefaultMaxResponse = 32 << 20

// Config is what a Manager needs.
type Config struct {
	// Servers are those of the configuration file, see Load.
	Servers []Server
	// Dir holds the catalogue: one file a server. It is made when missing.
	Dir string
	// Lookup yields the environment that servers may inherit a few harmless
	// variables of, PATH among them. Nil yields none.
	Lookup func(name string) (string, bool)
	// MaxResponse caps the bytes of one answer; 0 is DefaultMaxResponse.
	MaxResponse int
	// Version is told to servers; empty is "dev".
	Version string
	// Log may be nil.
	Log *slog.Logger
}

// Manager keeps the servers of one configuration. Its methods may be called
// at the same time.
type Manager struct {
	config    Config
	catalogue catalogue
	life      *life
	servers   []*server // in the configuration's order
}

// Hit is a tool that a search found.
type Hit = tool.Hit

// New makes a Manager; it starts no server. Close ends it.
func New(c Config) (*Manager, error) {
	c.MaxResponse = orElse(c.MaxResponse, DefaultMaxResponse)
	c.Version = orElse(c.Version, "dev")
	if c.Lookup == nil {
		c.Lookup = func(string) (string, bool) { return "", false }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("tool catalogue: %w", err)
	}
	m := &Manager{config: c, catalogue: catalogue{c.Dir}, life: newLife()}
	seen := map[string]bool{}
	for _, s := range c.Servers {
		if seen[s.Name] {
			return nil, &run.Error{Code: run.CodeInvalidOption, Field: "mcpServers." + s.Name, Class: errdefs.ErrInvalidArgument,
				Message: "MCP server " + s.Name + " is configured twice"}
		}
		seen[s.Name] = true
		one, err := m.newServer(s.withDefaults())
		if err != nil {
			return nil, err
		}
		m.servers = append(m.servers, one)
	}
	m.nameSpaces()
	return m, nil
}

// nameSpaces gives the servers their identifiers.
func (m *Manager) nameSpaces() {
	var names []string
	recorded := map[string]string{}
	for _, s := range m.servers {
		names = append(names, s.config.Name)
		if s.record.Namespace != "" {
			recorded[s.config.Name] = s.record.Namespace
		}
	}
	for name, namespace := range tool.Namespaces(names, recorded) {
		s := m.find(name)
		s.namespace, s.record.Namespace = namespace, namespace
		s.record.Tools = named(name, namespace, s.record.Tools, s.record.Functions)
	}
}

// find takes a name before an identifier.
func (m *Manager) find(name string) *server {
	for _, s := range m.servers {
		if s.config.Name == name {
			return s
		}
	}
	for _, s := range m.servers {
		if s.namespace == name && name != "" {
			return s
		}
	}
	return nil
}

// known finds a server that may be used.
func (m *Manager) known(name string) (*server, error) {
	s := m.find(name)
	if s == nil {
		return nil, m.unknownServer(name)
	}
	if s.config.Disabled {
		return nil, &run.Error{Code: run.CodeToolDenied, Class: errdefs.ErrPermissionDenied, Field: "server",
			Message: "MCP server " + s.config.Name + " is disabled by the configuration"}
	}
	return s, nil
}

func (m *Manager) unknownServer(name string) error {
	var names []string
	for _, s := range m.servers {
		if !s.config.Disabled {
			names = append(names, s.config.Name)
		}
	}
	e := &run.Error{Code: run.CodeUnknownServer, Class: errdefs.ErrNotFound, Field: "server",
		Message: fmt.Sprintf("no MCP server %q is configured", clip(name))}
	switch near := tool.Nearest(name, names); {
	case len(near) > 0:
		e.Hint = "did you mean " + either(near) + "?"
	case len(names) > 0:
		e.Hint = "there are " + list(names)
	default:
		e.Hint = "add it to mcpServers in .mcpx.json"
	}
	return e
}

// Servers lists the servers that are not disabled, with their tools, from the
// catalogue. A server that the catalogue knows nothing of is asked, all of them
// at the same time and each once: one that fails then is not asked again until
// it is called or refreshed.
func (m *Manager) Servers(ctx context.Context) []tool.Server {
	var work sync.WaitGroup
	var out []tool.Server
	var listed []*server
	for _, s := range m.servers {
		if s.config.Disabled {
			continue
		}
		listed = append(listed, s)
		if s.unasked() {
			work.Go(func() { s.ask(ctx) })
		}
	}
	work.Wait()
	for _, s := range listed {
		out = append(out, s.listing())
	}
	return out
}

// Server lists one server by its name or its namespace.
func (m *Manager) Server(ctx context.Context, name string) (tool.Server, error) {
	s, err := m.known(name)
	if err != nil {
		return tool.Server{}, err
	}
	if s.unasked() {
		s.ask(ctx)
	}
	return s.listing(), nil
}

// Search finds tools, see tool.Search.
func (m *Manager) Search(ctx context.Context, query string, limit int) []Hit {
	return tool.Search(m.Servers(ctx), query, limit)
}

// Tool looks a tool up by the names or the identifiers. The error for one that
// is not there suggests near names.
func (m *Manager) Tool(ctx context.Context, serverName, name string) (tool.Tool, error) {
	s, err := m.known(serverName)
	if err != nil {
		return tool.Tool{}, err
	}
	return s.tool(ctx, name)
}

// Refresh asks servers for their tools, all when none is named. All are asked,
// and the first error is returned.
func (m *Manager) Refresh(ctx context.Context, names ...string) error {
	var chosen []*server
	for _, name := range names {
		s, err := m.known(name)
		if err != nil {
			return err
		}
		chosen = append(chosen, s)
	}
	for _, s := range m.servers {
		if len(names) == 0 && !s.config.Disabled {
			chosen = append(chosen, s)
		}
	}
	errs := make([]error, len(chosen))
	var work sync.WaitGroup
	for i, s := range chosen {
		work.Go(func() { errs[i] = s.refresh(ctx) })
	}
	work.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Warm starts the instances that the configuration wants to be there always.
// It does not wait for them.
func (m *Manager) Warm(ctx context.Context) {
	for _, s := range m.servers {
		if !s.config.Disabled && s.config.Min > 0 {
			s.pool.warm(ctx)
		}
	}
}

// EndRun ends the instances that were started for one run.
func (m *Manager) EndRun(id string) { m.endKey(runKey(id)) }

// EndSession ends the instances that were started for one session of a
// principal.
func (m *Manager) EndSession(principal, session string) {
	m.endKey(sessionKey(principal, session))
}

func (m *Manager) endKey(key string) {
	for _, s := range m.servers {
		s.pool.endKey(key)
	}
}

// Close ends all servers and waits for it. Calls under way get an error.
func (m *Manager) Close(ctx context.Context) error {
	m.life.end()
	for _, s := range m.servers {
		s.pool.close()
	}
	done := make(chan struct{})
	go func() {
		m.life.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end MCP servers: %w", context.Cause(ctx))
	}
}
