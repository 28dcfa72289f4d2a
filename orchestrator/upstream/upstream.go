// Package upstream keeps the MCP servers that scripts call: it starts them
// when they are needed, knows their tools without starting them, and answers
// every call with the server's result or a typed error.
package upstream

import (
	"context"
	"errors"
	"log/slog"

	"mcpx/orchestrator/tool"
)

// Config is what a Manager needs.
type Config struct {
	// Servers are those of the configuration file, see Load.
	Servers []Server
	// Dir holds the catalogue: one file a server. It is made when missing.
	Dir string
	// Lookup yields the environment that servers may inherit a few harmless
	// variables of. Nil yields none.
	Lookup func(name string) (string, bool)
	// MaxResponse caps the bytes of one answer; 0 is 32 MiB.
	MaxResponse int
	// Log may be nil.
	Log *slog.Logger
}

// Hit is a tool that a search found.
type Hit = tool.Hit

// Status is what is known of one server's life.
type Status struct {
	Server    string     `json:"server"`
	State     string     `json:"state"` // idle, starting, running, failed, disabled
	Instances []Instance `json:"instances"`
	Restarts  int        `json:"restarts"`
	LastError string     `json:"lastError,omitempty"`
	Stderr    string     `json:"stderr,omitempty"`
}

// Instance is one living connection to a server.
type Instance struct {
	PID   int    `json:"pid,omitempty"`
	Scope string `json:"scope,omitempty"`
	Calls int    `json:"calls"`
}

// Manager keeps the servers of one configuration. Its methods may be called
// at the same time.
type Manager struct{}

var errSoon = errors.New("upstream is being written")

func New(cfg Config) (*Manager, error)                                  { return nil, errSoon }
func (m *Manager) Close(ctx context.Context) error                      { return errSoon }
func (m *Manager) Servers(ctx context.Context) []tool.Server            { return nil }
func (m *Manager) Search(ctx context.Context, query string, limit int) []Hit {
	return nil
}
func (m *Manager) Tool(ctx context.Context, server, name string) (tool.Tool, error) {
	return tool.Tool{}, errSoon
}
func (m *Manager) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	return tool.Result{}, errSoon
}
func (m *Manager) Refresh(ctx context.Context, servers ...string) error { return errSoon }
func (m *Manager) Status() []Status                                     { return nil }

// EndRun ends the instances that were started for one run alone.
func (m *Manager) EndRun(run string) {}

// EndSession ends the instances that were started for one session alone.
func (m *Manager) EndSession(principal, session string) {}
