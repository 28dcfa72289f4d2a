package rest

import (
	"context"
	"iter"
	"net/http"
	"os"

	"mcpx/artifacts"
	"mcpx/images"
	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
	"mcpx/policies"
)

// Jobs starts runs, tells of them and ends them (*job.Manager).
type Jobs interface {
	Submit(context.Context, run.Request, run.Caller) (id string, err error)
	Watch(ctx context.Context, id string, after int64) iter.Seq2[run.Event, error]
	Cancel(ctx context.Context, id string, cause error) (job.Outcome, error)
}

// Runs tells of runs, also of those long ended (*job.Manager).
type Runs interface {
	Get(ctx context.Context, id string) (run.Summary, error)
	List(context.Context, job.Filter) (page []run.Summary, next string, err error)
	Result(ctx context.Context, id string) (run.Result, error)
}

// Artifacts is the store (*artifacts.Store).
type Artifacts interface {
	Create(context.Context, artifacts.Meta) (*artifacts.Writer, error)
	OpenBlob(ctx context.Context, id string) (artifacts.Artifact, *os.File, error)
	List(context.Context, artifacts.Filter) (page []artifacts.Artifact, next string, err error)
	Delete(ctx context.Context, id string) error
}

// Images tells what the engine has of an image (engine.Engine).
type Images interface {
	EnsureImage(ctx context.Context, ref string, pull engine.PullPolicy) (engine.Image, error)
}

// Policies is the document in force (*policies.Document).
type Policies interface {
	Rules() []policies.Rule
	Explain(images.Facts, policies.Facts) (policies.Explanation, error)
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
	// Refresh asks servers, all when none is named, what tools they have.
	Refresh(ctx context.Context, servers ...string) error
}

// MCP answers requests of MCP's Streamable HTTP transport (*mcp.Server). An
// error means that nothing has been answered.
type MCP interface {
	ServeMCP(w http.ResponseWriter, r *http.Request, by run.Caller) error
}

var (
	_ Jobs      = (*job.Manager)(nil)
	_ Runs      = (*job.Manager)(nil)
	_ Artifacts = (*artifacts.Store)(nil)
	_ Images    = engine.Engine(nil)
	_ Policies  = (*policies.Document)(nil)
)
