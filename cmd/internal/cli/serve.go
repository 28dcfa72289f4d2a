package cli

import (
	"log/slog"

	"github.com/spf13/cobra"

	"mcpx/cmd/internal/daemon"
)

func (a *app) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Be the daemon: take requests over HTTP",
		Long: `Be the daemon: take requests over HTTP, on a unix socket that only this user can
open, and on TCP where --listen says so. A TCP address wants --token-file; without
one, --no-auth is taken on loopback addresses only.

When it takes requests it prints one line, "ready" and its addresses, to stderr. It
ends on SIGTERM or SIGINT, after the runs under way or --drain; a second signal
ends it at once.`,
		Example: `  mcpx serve
  mcpx serve --state /srv/mcpx --listen unix:///srv/mcpx/sock --listen 127.0.0.1:7770 --token-file token`,
		Args: takes(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, _, err := a.config()
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return daemon.Serve(ctx, config, thisVersion().Version, a.err, daemon.NewLog(config, a.err, slog.LevelInfo))
		},
	}
	a.flags.bindServe(cmd.Flags())
	return cmd
}
