package upstream

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/tailscale/hujson"

	"mcpx/orchestrator/run"
)

// Transport is how a server is reached.
type Transport string

// Transports.
const (
	Stdio Transport = "stdio"
	HTTP  Transport = "http" // Streamable HTTP
	SSE   Transport = "sse"  // HTTP+SSE of 2024-11-05
)

// Sharing says how many calls an instance of a server takes at a time.
type Sharing string

// Sharings.
const (
	Shared    Sharing = "shared"
	Exclusive Sharing = "exclusive" // one call at a time
)

// Scope says for whom an instance of a server is.
type Scope string

// Scopes.
const (
	ScopeGlobal  Scope = "global"
	ScopeSession Scope = "session"
	ScopeRun     Scope = "run"
	ScopeCall    Scope = "call"
)

// Defaults of the mcpx block.
const (
	DefaultIdleTimeout  = 10 * time.Minute
	DefaultCallTimeout  = 5 * time.Minute
	DefaultStartTimeout = time.Minute
	DefaultScopedMax    = 16 // instances of a server whose scope is not global
)

// Server is one configured server. How it is started never goes into JSON or
// a log: arguments, addresses, variables and headers hold secrets.
type Server struct {
	Name      string            `json:"name"`
	Transport Transport         `json:"transport"`
	Command   string            `json:"-"`
	Args      []string          `json:"-"`
	Env       map[string]string `json:"-"`
	Cwd       string            `json:"-"`
	URL       string            `json:"-"`
	Headers   map[string]string `json:"-"`

	Description string  `json:"description,omitempty"`
	Disabled    bool    `json:"disabled,omitempty"`
	Sharing     Sharing `json:"sharing"`
	Scope       Scope   `json:"scope"`
	// Min instances of a global server are started at once and kept; Max
	// bounds all of a server's instances.
	Min          int           `json:"min"`
	Max          int           `json:"max"`
	IdleTimeout  time.Duration `json:"-"`
	CallTimeout  time.Duration `json:"-"`
	StartTimeout time.Duration `json:"-"`
	// Tools are the names, globs and /regexps/ of the tools there are for
	// scripts, all when empty; those that ExcludeTools matches are not.
	Tools        []string `json:"tools,omitempty"`
	ExcludeTools []string `json:"excludeTools,omitempty"`
	// Problem says why it can't be started, as a variable that is not set.
	Problem string `json:"problem,omitempty"`

	// expanded are the values that ${VAR} put into arguments and the address.
	expanded []string
}

// LogValue keeps all but the name out of logs.
func (s Server) LogValue() slog.Value { return slog.StringValue(s.Name) }

// String is for %v, which would spell secrets out.
func (s Server) String() string { return "MCP server " + s.Name }

// GoString is for %#v.
func (s Server) GoString() string { return s.String() }

// withDefaults fills what a configuration may leave out.
func (s Server) withDefaults() Server {
	s.Transport = orElse(s.Transport, Stdio)
	s.Sharing = orElse(s.Sharing, Shared)
	s.Scope = orElse(s.Scope, ScopeGlobal)
	s.IdleTimeout = orElse(s.IdleTimeout, DefaultIdleTimeout)
	s.CallTimeout = orElse(s.CallTimeout, DefaultCallTimeout)
	s.StartTimeout = orElse(s.StartTimeout, DefaultStartTimeout)
	if s.Max == 0 {
		s.Max = max(1, s.Min)
		if s.Scope != ScopeGlobal {
			s.Max = DefaultScopedMax
		}
	}
	return s
}

func orElse[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// File is a configuration file that was read.
type File struct {
	Path    string
	Servers []Server // in the file's order
	// Warnings name members that mcpx does not know and leaves alone.
	Warnings []string
}

// maxFile bounds a configuration file.
const maxFile = 4 << 20

// Load reads a configuration file. ${VAR} is looked up by lookup. The
// directory of a server is relative to the file's project: the directory that
// holds the file, or holds its .mcpx.
func Load(path string, lookup func(name string) (string, bool)) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, &run.Error{Code: run.CodeInvalidOption, Message: "MCP configuration can't be read: " + err.Error(), Class: errdefs.ErrNotFound}
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument,
			Message: "MCP configuration " + path + " is not a regular file of at most 4 MiB"}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, &run.Error{Code: run.CodeInvalidOption, Message: "MCP configuration can't be read: " + err.Error(), Class: errdefs.ErrPermissionDenied}
	}
	file, err := Parse(text, project(path), lookup)
	if err != nil {
		if e, ok := err.(*run.Error); ok {
			e.Message = path + ": " + e.Message
		}
		return nil, err
	}
	file.Path = path
	return file, nil
}

func project(path string) string {
	dir := filepath.Dir(path)
	if filepath.Base(dir) == ".mcpx" {
		return filepath.Dir(dir)
	}
	return dir
}

// Parse reads the text of a configuration: JSON, with comments and trailing
// commas, that has the mcpServers object which MCP hosts share.
func Parse(text []byte, dir string, lookup func(name string) (string, bool)) (*File, error) {
	if lookup == nil {
		lookup = func(string) (string, bool) { return "", false }
	}
	p := &parser{text: text, dir: dir, lookup: lookup}
	text = []byte(strings.TrimPrefix(string(text), "\ufeff"))
	p.text = text
	root, err := hujson.Parse(text)
	if err != nil {
		return nil, &run.Error{Code: run.CodeInvalidOption, Message: "not JSON: " + strings.TrimPrefix(err.Error(), "hujson: "), Class: errdefs.ErrInvalidArgument}
	}
	file, err := p.file(root)
	if err != nil {
		return nil, err
	}
	return file, nil
}
