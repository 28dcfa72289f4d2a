// Package cli is the command line: one file for each noun. It parses and
// prints; what is done is done by the daemon, or by the same code in this
// process.
package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"mcpx/cmd/internal/daemon"
)

// app is what all commands share.
type app struct {
	streams
	process daemon.Process

	flags settingFlags
	// started: a command's own code has begun, so an error is no more about
	// how it was called.
	started bool
}

// Main runs the command line of this process and yields its exit code.
func Main() int {
	a := &app{streams: processStreams(), process: daemon.ThisProcess()}
	return a.run(context.Background(), os.Args[1:])
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	return a.exit(root.ExecuteContext(ctx))
}

const rootHelp = `mcpx runs scripts in containers: each run gets a fresh one, made from the image of
the interpreter that the script's first line names, and thrown away afterwards.

A script's stdout is stdout, its exit code is the exit code. Everything that mcpx
itself has to say goes to stderr. Exit codes beside the script's own: 2 wrong usage,
75 no room, 124 timeout, 125 mcpx could not do its part, 126 denied, 130 cancelled.`

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "mcpx",
		Short:         "Run scripts nobody vouches for, each in a container of its own",
		Long:          rootHelp,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			err := cmd.ValidateFlagGroups()
			a.started = err == nil
			return err
		},
	}
	a.flags.bindCommon(root.PersistentFlags())
	root.AddCommand(
		a.execCommand(), a.runCommand(), a.serveCommand(),
		a.lsCommand(), a.searchCommand(), a.typesCommand(), a.callCommand(), a.refreshCommand(), a.mcpCommand(),
		a.runsCommand(), a.artifactsCommand(), a.imagesCommand(), a.policyCommand(),
		a.doctorCommand(), a.settingsCommand(), a.versionCommand(), a.parserCommand(),
	)
	return root
}

// config merges what the command line, the environment and the file say.
func (a *app) config() (daemon.Config, []daemon.Setting, error) {
	return daemon.Load(daemon.Sources{Process: a.process, File: a.flags.file, Flags: a.flags.given()})
}
