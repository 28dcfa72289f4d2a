package cli

import (
	"context"
	"crypto/rand"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"mcpx/api/auth"
	"mcpx/api/client"
	"mcpx/api/mcp"
	"mcpx/artifacts"
	"mcpx/orchestrator/run"
)

func (a *app) mcpCommand() *cobra.Command {
	var p place
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Be an MCP server on standard input and output",
		Long: `Be an MCP server on standard input and output, for clients that start their servers
as commands. Its tools run scripts and find and call the tools of the configured MCP
servers. With a daemon (--remote, or a configured endpoint) it is the daemon that does
it; the daemon also serves MCP over HTTP, at /mcp.`,
		Example: `  {"mcpServers": {"mcpx": {"command": "mcpx", "args": ["mcp"]}}}`,
		Args:    takes(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.serveStdio(cmd.Context(), &p) },
	}
	p.bind(cmd.Flags())
	return cmd
}

// serveStdio serves the same tools wherever the work is done: what differs is
// only who carries out runs, calls tools and keeps artifacts.
func (a *app) serveStdio(ctx context.Context, p *place) error {
	config, _, err := a.config()
	if err != nil {
		return err
	}
	endpoint, err := p.endpoint(a, config)
	if err != nil {
		return err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	version, session := thisVersion().Version, "stdio-"+rand.Text()[:12]
	var server *mcp.Server
	if endpoint == "" {
		local, err := a.openLocal(ctx, config, nil)
		if err != nil {
			return err
		}
		defer local.Close()
		server = local.runtime.MCP(version, session, cwd)
	} else {
		c, err := a.client(config, endpoint)
		if err != nil {
			return err
		}
		defer c.Close()
		if !strings.HasPrefix(endpoint, "unix://") {
			cwd = "" // it means nothing there
		}
		server = mcp.New(mcp.Config{
			Runs: farRuns{c}, Tools: c, Artifacts: farArtifacts{c}, Log: a.commandLog(config), Version: version, Session: session, Cwd: cwd,
		})
	}
	defer server.Close()
	return server.Stdio(ctx, closable(a.in), nopWriteCloser{a.out}, run.Caller{Principal: auth.PrincipalLocal, SharedFs: true})
}

// closable makes a reader whose Close ends a read that waits, which standard
// input's does not. The reading that is left behind goes with the process.
func closable(in io.Reader) io.ReadCloser {
	out, feed := io.Pipe()
	go func() {
		_, err := io.Copy(feed, in)
		feed.CloseWithError(err)
	}()
	return out
}

type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }

// farRuns are carried out by a daemon, which knows whom its connection is from.
type farRuns struct{ client *client.Client }

func (f farRuns) Exec(ctx context.Context, req run.Request, _ run.Caller, yield func(run.Event) error) (run.Result, error) {
	return f.client.Exec(ctx, req, yield)
}

func (f farRuns) Result(ctx context.Context, id string, _ run.Caller) (run.Result, error) {
	document, err := f.client.Run(ctx, id)
	if err != nil {
		return run.Result{}, err
	}
	if document.Result == nil {
		return run.Result{}, wrong("run "+id+" has not ended", "ask again later")
	}
	return *document.Result, nil
}

// farArtifacts are a daemon's.
type farArtifacts struct{ client *client.Client }

func (f farArtifacts) Artifact(ctx context.Context, id string, _ run.Caller) (run.Artifact, io.ReadCloser, error) {
	return distant{f.client}.Artifact(ctx, id)
}

func (f farArtifacts) Keep(ctx context.Context, meta artifacts.Meta, body io.Reader) (run.Artifact, error) {
	document, err := f.client.Upload(ctx, meta, body)
	return document.Artifact, err
}
