package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) runCommand() *cobra.Command {
	var w wishes
	var remoteFile bool
	cmd := &cobra.Command{
		Use:   "run [flags] FILE|NAME [ARG...]",
		Short: "Run a script from a file",
		Long: `Run a script from a file, in a container of its own.

What has a separator or a script's extension is a path. Anything else is a name,
looked up in every .mcpx/scripts and .config/mcpx/scripts from this directory
upwards, then in the user's directory.

A daemon elsewhere is sent the file's text; with --remote-file, or file:NAME, the
daemon looks the name up on its side.

Flags stand before the script; everything after it is the script's. So a script
can begin with #!/usr/bin/env -S mcpx run --bash and be called by its name.`,
		Example: `  mcpx run report.py --month may
  mcpx run --timeout 5s --env TOKEN ./check.sh
  mcpx run --json probe.ts | jq .result`,
		Args: takes(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, isThere := strings.CutPrefix(args[0], "file:")
			if name == "" {
				return wrong("the script has no name", cmd.CommandPath()+" --help")
			}
			a.warnMisplaced(cmd, args[1:])
			return a.carryOut(cmd.Context(), &w, program{file: name, there: isThere || remoteFile}, scriptArgs(args[1:]))
		},
	}
	w.bind(cmd)
	cmd.Flags().BoolVar(&remoteFile, "remote-file", false, "the daemon looks the name up on its side")
	return cmd
}
