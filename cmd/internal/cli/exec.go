package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"mcpx/api/problem"
	"mcpx/cmd/internal/daemon"
	"mcpx/images"
	"mcpx/orchestrator/run"
)

func (a *app) execCommand() *cobra.Command {
	var w wishes
	cmd := &cobra.Command{
		Use:   "exec [flags] [SOURCE|-] [ARG...]",
		Short: "Run a program given as text",
		Long: `Run a program given as text, in a container of its own.

SOURCE is the program. Without it, or with -, the program is read from standard
input, and the script itself reads nothing. The interpreter is the one that the
program's first line names (#!/usr/bin/env python3), else --runtime, else the
configured one, else TypeScript's.

Flags stand before SOURCE; everything after it is the script's.`,
		Example: `  mcpx exec --bash 'echo hello'
  mcpx exec --runtime python3 'import sys; print(sys.argv[1:])' a b
  mcpx exec < report.ts`,
		RunE: func(cmd *cobra.Command, args []string) error {
			source, args, err := a.source(&w, args)
			if err != nil {
				return err
			}
			a.warnMisplaced(cmd, args)
			return a.carryOut(cmd.Context(), &w, program{source: source}, scriptArgs(args))
		},
	}
	w.bind(cmd)
	return cmd
}

// source is the program, and what is left of the arguments.
func (a *app) source(w *wishes, args []string) (string, []string, error) {
	if len(args) > 0 && args[0] != "-" {
		return args[0], args[1:], nil
	}
	if len(args) > 0 {
		args = args[1:]
	} else if a.in == nil || isTerminal(a.in) {
		return "", nil, wrong("no program was given", "mcpx exec 'SOURCE', or pipe one in")
	}
	if w.stdin == "-" {
		return "", nil, wrong("standard input cannot be both the program and its input", "give the program as an argument, or --stdin FILE")
	}
	text, err := io.ReadAll(io.LimitReader(a.in, maxSource+1))
	if err != nil {
		return "", nil, fmt.Errorf("program on standard input: %w", err)
	}
	if len(text) > maxSource {
		return "", nil, wrong(fmt.Sprintf("the program on standard input is over %d MiB", maxSource>>20), "send data as the script's input instead")
	}
	if w.stdin == "" {
		w.stdin = os.DevNull // the program was all there was
	}
	return string(text), args, nil
}

// program is what is to be run: text, or the name of a file that is looked up
// here, or there where the run is carried out.
type program struct {
	source, file string
	there        bool
}

// carryOut runs a program where the flags and settings want it, prints what comes
// of it, and ends with the run's exit code.
func (a *app) carryOut(ctx context.Context, w *wishes, p program, args []string) error {
	config, _, err := a.config()
	if err != nil {
		return err
	}
	endpoint, err := w.place.endpoint(a, config)
	if err != nil {
		return err
	}
	options, err := w.options(a, args)
	if err != nil {
		return err
	}
	in, err := w.input(a)
	if err != nil {
		return err
	}
	if in != nil {
		defer in.Close()
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	show := a.printer(w)
	var result run.Result
	if endpoint == "" {
		result, err = a.here(ctx, w, config, run.Request{Source: p.source, File: p.file, Options: options}, in, show)
	} else {
		result, err = a.there(ctx, w, config, endpoint, p, options, in, show)
	}
	if err != nil {
		return err
	}
	if err := show.end(result); err != nil {
		return err
	}
	if code := problem.ExitCode(result); code != 0 {
		return exitCode(code)
	}
	return nil
}

// here carries a request out in this process.
func (a *app) here(ctx context.Context, w *wishes, config daemon.Config, req run.Request, in io.Reader, show printer) (run.Result, error) {
	if req.Options.Cwd == "" {
		cwd, err := os.Getwd()
		if err != nil {
			return run.Result{}, fmt.Errorf("this directory: %w", err)
		}
		req.Options.Cwd = cwd
	}
	local, err := a.openLocal(ctx, config, in)
	if err != nil {
		return run.Result{}, err
	}
	defer local.Close()
	result, err := local.Exec(ctx, req, show.event)
	if err != nil {
		return result, err
	}
	return result, a.keepAll(context.WithoutCancel(ctx), w, local, result)
}

// there has a daemon run a program. What it needs from this machine, the
// program's text and its input, travels with it.
func (a *app) there(ctx context.Context, w *wishes, config daemon.Config, endpoint string, p program, options run.Options, in io.Reader, show printer) (run.Result, error) {
	remote, err := a.client(config, endpoint)
	if err != nil {
		return run.Result{}, err
	}
	defer remote.Close()
	req := run.Request{Source: p.source, File: p.file, Options: options}
	if err := a.near(config, endpoint, &req, p); err != nil {
		return run.Result{}, err
	}
	if in != nil {
		data, silent, err := wholeInput(in, w.stdin != "")
		if err != nil {
			return run.Result{}, err
		}
		if silent && !w.quiet {
			a.say("warning: standard input is open and says nothing: the script gets none (--stdin - waits for it, --stdin /dev/null silences this)")
		}
		withStdin(&req.Options, data)
	}
	result, err := remote.Exec(ctx, req, show.event)
	if err != nil {
		return result, err
	}
	return result, a.keepAll(context.WithoutCancel(ctx), w, distant{Client: remote}, result)
}

// near settles what a request says about this machine: its directory means
// something only to a daemon that may share our files, and a file is read here
// unless it was to be looked up there.
func (a *app) near(config daemon.Config, endpoint string, req *run.Request, p program) error {
	cwd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("this directory: %w", err)
	}
	if req.Options.Cwd == "" && strings.HasPrefix(endpoint, "unix://") {
		req.Options.Cwd = cwd
	}
	if p.file == "" || p.there {
		return nil
	}
	return readScript(config, cwd, req)
}

// readScript puts the text of the file that req names into it. Its name stays
// here, so what the name says of the language is sent as the runtime.
func readScript(config daemon.Config, cwd string, req *run.Request) error {
	document, err := daemon.LoadPolicies(config)
	if err != nil {
		return err
	}
	found, err := daemon.NewResolver(config, document).Resolve(*req, cwd)
	if err != nil {
		return err
	}
	req.File, req.Source = "", string(found.Text)
	if req.Options.Runtime != "" {
		return nil
	}
	byName, ok := document.Catalog().ByExtension(filepath.Ext(found.Name))
	if bang, hasBang, err := images.ParseShebang(found.Text); ok && err == nil && (!hasBang || bang.Interpreter == "mcpx") {
		req.Options.Runtime = byName.Name
	}
	return nil
}
