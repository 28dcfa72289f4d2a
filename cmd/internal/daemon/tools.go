package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

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
