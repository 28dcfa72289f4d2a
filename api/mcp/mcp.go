// Package mcp is the MCP surface: the tools that have scripts run and that find
// and call the tools of other servers, over Streamable HTTP and over stdio. It
// parses, calls one method and writes, as package rest does.
package mcp

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpx/artifacts"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

// Runs carries scripts out.
type Runs interface {
	// Exec runs a request, gives its events to yield as they happen and then
	// yields its result. When ctx ends, the run is ended as ctx's cause says,
	// and Exec waits for its end.
	Exec(ctx context.Context, req run.Request, by run.Caller, yield func(run.Event) error) (run.Result, error)
	// Result is that of a run that has ended. To others than its owner it does
	// not exist.
	Result(ctx context.Context, id string, by run.Caller) (run.Result, error)
}

// Tools are those of the configured MCP servers.
type Tools interface {
	// Servers lists the server that ns names, all when it is empty.
	Servers(ctx context.Context, ns string) ([]tool.Server, error)
	Search(ctx context.Context, query string, limit int) ([]tool.Hit, error)
	// Types declares a namespace in a language ("" is TypeScript), all its
	// functions unless some are named.
	Types(ctx context.Context, ns, lang string, functions ...string) (string, error)
	Call(context.Context, tool.Call) (tool.Result, error)
}

// Artifacts keeps what runs and tools leave.
type Artifacts interface {
	// Artifact opens an artifact's bytes. To others than its owner it does not
	// exist.
	Artifact(ctx context.Context, id string, by run.Caller) (run.Artifact, io.ReadCloser, error)
	// Keep stores what body yields until its end.
	Keep(ctx context.Context, meta artifacts.Meta, body io.Reader) (run.Artifact, error)
}

// Config is what a Server serves. All must be set but Session and Extend.
type Config struct {
	Runs      Runs
	Tools     Tools
	Artifacts Artifacts
	Log       *slog.Logger
	// Version is told to clients.
	Version string
	// Session is the session of callers whose connection names none.
	Session string
	// Cwd is the directory of callers who name none; stdio's callers have one.
	Cwd string
	// Extend changes how a server is made, and then what it serves: the official
	// conformance suite wants features that mcpx has no use for.
	Extend func(*sdk.ServerOptions) func(*sdk.Server)
}

// Server answers MCP clients; safe for concurrent use.
type Server struct {
	config Config

	mu       sync.Mutex
	closed   bool
	surfaces map[string]*surface // by principal
	requests map[string]request  // HTTP requests under way, by a key of ours
	work     sync.WaitGroup      // requests, and tools that outlive theirs
}

// New makes a Server; Close ends it.
func New(c Config) *Server {
	return &Server{config: c, surfaces: map[string]*surface{}, requests: map[string]request{}}
}

// newSDK makes what answers one kind of session. Nothing is announced that is
// not served: clients ask for what they find in the capabilities.
func (s *Server) newSDK() *sdk.Server {
	capabilities := &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}}
	options := &sdk.ServerOptions{
		Instructions: instructions, Capabilities: capabilities,
		Logger: slog.New(slog.DiscardHandler), // what it has to say are its clients' mistakes
		// What one caller may read, a cache must not give to another.
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
	}
	extend := func(*sdk.Server) {}
	if s.config.Extend != nil {
		extend = s.config.Extend(options)
	}
	server := sdk.NewServer(&sdk.Implementation{Name: "mcpx", Title: "mcpx", Version: s.config.Version}, options)
	for _, t := range s.tools() {
		server.AddTool(t.described, s.handle(t))
	}
	s.addResources(server)
	extend(server)
	server.AddReceivingMiddleware(onlyAnnounced(capabilities))
	return server
}

// Stdio answers the one client at the other end of in and out, until it goes
// or ctx ends; runs that it left are ended.
func (s *Server) Stdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser, by run.Caller) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	key, done, err := s.enter(request{ctx: ctx, by: by})
	if err != nil {
		return err
	}
	defer done()
	session, err := s.newSDK().Connect(withKey(ctx, key), &sdk.IOTransport{Reader: in, Writer: out, MaxLineLength: maxBody}, nil)
	if err != nil {
		return fmt.Errorf("MCP session: %w", err)
	}
	gone := make(chan error, 1)
	go func() { gone <- session.Wait() }()
	select {
	case <-gone:
		cancel(run.ErrClientGone)
	case <-ctx.Done():
		cancel(context.Cause(ctx))
		in.Close() //nolint:errcheck // unblocks the reader
		<-gone
	}
	session.Close() //nolint:errcheck // the client is gone
	return nil
}

// Close ends all sessions and waits for the tools under way, whose callers are
// gone by then.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	surfaces := s.surfaces
	s.surfaces = map[string]*surface{}
	s.mu.Unlock()
	for _, one := range surfaces {
		one.close()
	}
	s.work.Wait()
}
