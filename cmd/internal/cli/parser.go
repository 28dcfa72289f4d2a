package cli

import (
	"github.com/spf13/cobra"

	"mcpx/cmd/internal/daemon"
	"mcpx/orchestrator/client"
)

// parserCommand is what mcpx starts of itself to parse scripts apart from
// everything else.
func (a *app) parserCommand() *cobra.Command {
	return &cobra.Command{
		Use:    daemon.ParserCommand,
		Short:  "Parse scripts for another mcpx",
		Hidden: true,
		Args:   takes(cobra.NoArgs),
		RunE:   func(*cobra.Command, []string) error { return client.ServeParser(a.in, a.out) },
	}
}
