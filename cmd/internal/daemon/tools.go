package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"mcpx/api/mcp"
	"mcpx/orchestrator"
	jobstore "mcpx/orchestrator/job/sqlite"
	"mcpx/orchestrator/upstream"
)

// NoMCP is the value of the setting mcp.config that turns MCP servers off.
const NoMCP = "none"

// OpenTools makes the manager of the MCP servers that scripts may call: those of
// the file that the setting mcp.config names, else of the nearest one. Without a
// file there are no servers. No server is started by this.
func OpenTools(c Config, log *slog.Logger) (*upstream.Manager, error) {
	path := c.MCPConfig
	if path == "" {
		path, _ = upstream.Find(c.Cwd, c.UserDir)
	}
	config := upstream.Config{Lookup: c.LookupEnv, Log: log}
	if path == "" || path == NoMCP {
		config.Dir = filepath.Join(c.State, "catalogue", NoMCP)
		return upstream.New(config)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("mcp.config: %w", err)
	}
	file, err := upstream.Load(path, c.LookupEnv)
	if err != nil {
		return nil, err
	}
	for _, warning := range file.Warnings {
		log.Warn("MCP configuration", "file", path, "warning", warning)
	}
	config.Servers = file.Servers
	config.Dir = filepath.Join(c.State, "catalogue", catalogueName(path))
	return upstream.New(config)
}

// OpenDirect makes the tools for a command that has no daemon. Only calls are
// recorded, and only for them the database is opened: listings have to be fast.
// close ends the servers.
func OpenDirect(c Config, audited bool, log *slog.Logger) (direct *orchestrator.Direct, close func() error, err error) {
	direct = &orchestrator.Direct{Log: log}
	if direct.Policies, err = LoadPolicies(c); err != nil {
		return nil, nil, err
	}
	manager, err := OpenTools(c, log)
	if err != nil {
		return nil, nil, err
	}
	direct.Upstream, close = manager, toolsCloser{manager}.Close
	if !audited {
		return direct, close, nil
	}
	rows, err := openRows(c)
	if err != nil {
		return nil, nil, errors.Join(err, close())
	}
	direct.Audit = rows
	if direct.AuditKey, err = auditKey(c.State); err != nil {
		return nil, nil, errors.Join(err, close(), rows.Close())
	}
	return direct, func() error { return errors.Join(toolsCloser{manager}.Close(), rows.Close()) }, nil
}

func openRows(c Config) (*jobstore.Store, error) {
	file := filepath.Join(c.State, "mcpx.db")
	if err := makePrivate([]string{file}); err != nil {
		return nil, err
	}
	return jobstore.Open(file)
}

// MCP makes the MCP surface of this process. session and cwd are those of
// callers who name none.
func (r *Runtime) MCP(version, session, cwd string) *mcp.Server {
	return mcp.New(mcp.Config{
		Runs: mcp.Local(r.Manager, r.log), Tools: r.Direct, Artifacts: mcp.Stored(r.Artifacts),
		Log: r.log, Version: version, Session: session, Cwd: cwd,
	})
}

// catalogueName keeps the servers of one file apart from those of another that
// have the same names.
func catalogueName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:8])
}

// toolsTimeout bounds the end of all servers.
const toolsTimeout = 15 * time.Second

// toolsCloser ends the servers.
type toolsCloser struct{ *upstream.Manager }

func (t toolsCloser) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), toolsTimeout)
	defer cancel()
	return t.Manager.Close(ctx)
}
