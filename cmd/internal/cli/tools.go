package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mcpx/cmd/internal/daemon"
	"mcpx/orchestrator/tool"
)

// toolbox are the tools of MCP servers: a daemon's, or those that the
// configuration names here.
type toolbox interface {
	Servers(ctx context.Context, ns string) ([]tool.Server, error)
	Search(ctx context.Context, query string, limit int) ([]tool.Hit, error)
	Types(ctx context.Context, ns, lang string, functions ...string) (string, error)
	Call(context.Context, tool.Call) (tool.Result, error)
	Refresh(ctx context.Context, servers ...string) error
}

// withTools opens the tools where the flags and settings want them. Only calls
// are recorded.
func (a *app) withTools(ctx context.Context, p *place, calls bool, do func(context.Context, toolbox) error) error {
	config, _, err := a.config()
	if err != nil {
		return err
	}
	endpoint, err := p.endpoint(a, config)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	if endpoint != "" {
		c, err := a.client(config, endpoint)
		if err != nil {
			return err
		}
		defer c.Close()
		return do(ctx, c)
	}
	direct, done, err := daemon.OpenDirect(config, calls, a.commandLog(config))
	if err != nil {
		return err
	}
	defer func() {
		if err := done(); err != nil {
			a.say("MCP servers did not end as they should: %v", err)
		}
	}()
	return do(ctx, direct)
}

func (a *app) lsCommand() *cobra.Command {
	var p place
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [NAMESPACE]",
		Short: "List the namespaces of tools that scripts can call, or the functions of one",
		Long: `List the namespaces of tools that scripts can call, or the functions of one.

They are those of the MCP servers in the nearest .mcpx.json, .mcpx/config.json or
.mcp.json (or --mcp-config FILE). What a server has is kept in a catalogue, so that
listing starts none; mcpx refresh asks anew.`,
		Args: takes(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ns := strings.Join(args, "")
			return a.withTools(cmd.Context(), &p, false, func(ctx context.Context, t toolbox) error {
				servers, err := t.Servers(ctx, ns)
				if err != nil {
					return err
				}
				return a.listServers(servers, ns != "", asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON document, with the tools' schemas")
	p.bind(cmd.Flags())
	return cmd
}

// serverList is a listing as the daemon gives it, too.
type serverList struct {
	Servers []tool.Server `json:"servers"`
}

func (a *app) listServers(servers []tool.Server, functions, asJSON bool) error {
	if asJSON {
		return a.document(serverList{append([]tool.Server{}, servers...)})
	}
	if functions {
		return a.listFunctions(servers)
	}
	if len(servers) == 0 {
		a.say("no MCP servers are configured: name them in mcpServers of .mcpx.json, or give --mcp-config FILE")
		return nil
	}
	rows := [][]string{{"NAMESPACE", "TOOLS", "SERVER", "DESCRIPTION"}}
	for _, s := range servers {
		about := brief(s.Description)
		if s.Err != "" {
			about = "! " + s.Err
		}
		rows = append(rows, []string{s.Namespace, fmt.Sprint(len(s.Tools)), s.Name, about})
	}
	return a.table(rows)
}

func (a *app) listFunctions(servers []tool.Server) error {
	rows := [][]string{{"FUNCTION", "DESCRIPTION"}}
	for _, s := range servers {
		if s.Err != "" {
			a.say("%s: %s", s.Name, s.Err)
		}
		for _, t := range s.Tools {
			rows = append(rows, []string{s.Namespace + "." + t.Function, brief(t.Description)})
		}
	}
	return a.table(rows)
}

// maxBrief is what is shown of a description, in runes.
const maxBrief = 80

// brief is the first line of a description.
func brief(description string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(description), "\n")
	if runes := []rune(line); len(runes) > maxBrief {
		return string(runes[:maxBrief-1]) + "…"
	}
	return line
}

func (a *app) searchCommand() *cobra.Command {
	var p place
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use:   "search WORD...",
		Short: "Find tools by words of their names and descriptions, the best first",
		Args:  takes(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > maxHits {
				return wrong(fmt.Sprintf("--limit %d is not from 1 to %d", limit, maxHits), "")
			}
			return a.withTools(cmd.Context(), &p, false, func(ctx context.Context, t toolbox) error {
				hits, err := t.Search(ctx, strings.Join(args, " "), limit)
				if err != nil {
					return err
				}
				return a.listHits(hits, asJSON)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&limit, "limit", 20, "most tools to list")
	f.BoolVar(&asJSON, "json", false, "print a JSON document, with the tools' schemas")
	p.bind(f)
	return cmd
}

// maxHits is the largest page of any listing over HTTP, too.
const maxHits = 1000

func (a *app) listHits(hits []tool.Hit, asJSON bool) error {
	if asJSON {
		return a.document(struct {
			Hits []tool.Hit `json:"hits"`
		}{append([]tool.Hit{}, hits...)})
	}
	if len(hits) == 0 {
		a.say("nothing found; mcpx ls lists the namespaces")
		return nil
	}
	rows := [][]string{{"FUNCTION", "DESCRIPTION"}}
	for _, h := range hits {
		rows = append(rows, []string{h.Tool.Namespace + "." + h.Tool.Function, brief(h.Tool.Description)})
	}
	return a.table(rows)
}

func (a *app) typesCommand() *cobra.Command {
	var p place
	var lang string
	cmd := &cobra.Command{
		Use:   "types NAMESPACE [FUNCTION...]",
		Short: "Print the declarations of a namespace's functions",
		Args:  takes(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTools(cmd.Context(), &p, false, func(ctx context.Context, t toolbox) error {
				text, err := t.Types(ctx, args[0], lang, args[1:]...)
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(a.out, text)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&lang, "lang", "", "typescript (default) or python")
	p.bind(cmd.Flags())
	return cmd
}

func (a *app) refreshCommand() *cobra.Command {
	var p place
	cmd := &cobra.Command{
		Use:   "refresh [SERVER...]",
		Short: "Ask MCP servers what tools they have, and keep it in the catalogue",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTools(cmd.Context(), &p, false, func(ctx context.Context, t toolbox) error {
				if err := t.Refresh(ctx, args...); err != nil {
					return err
				}
				servers, err := t.Servers(ctx, "")
				if err != nil {
					return err
				}
				return a.listServers(servers, false, false)
			})
		},
	}
	p.bind(cmd.Flags())
	return cmd
}
