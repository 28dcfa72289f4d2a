package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"mcpx/cmd/internal/daemon"
	"mcpx/images/runner"
	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
	"mcpx/policies"
)

// imageRow is one interpreter and its image on this machine.
type imageRow struct {
	Interpreter string `json:"interpreter"`
	Image       string `json:"image"`
	Policy      string `json:"policy"`
	Present     bool   `json:"present"`
	Digest      string `json:"digest,omitempty"`
	Size        int64  `json:"size,omitempty"` // bytes
	Init        string `json:"init,omitempty"` // protocol of the init that it carries
}

func (a *app) imagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images",
		Short: "List, build or pull the interpreters' images",
		Args:  takes(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.imagesListCommand(), a.imagesBuildCommand(), a.imagesPullCommand())
	return cmd
}

// withEngine opens what concerns images: the policies, which name them, and the
// engine, which has them.
func (a *app) withEngine(ctx context.Context, do func(engine.Engine, *policies.Document) error) error {
	config, _, err := a.config()
	if err != nil {
		return err
	}
	document, err := daemon.LoadPolicies(config)
	if err != nil {
		return err
	}
	e, err := daemon.NewEngine(config, document, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer e.Close() //nolint:errcheck // it was only asked
	if _, err := e.Info(ctx); err != nil {
		return err
	}
	return do(e, document)
}

func (a *app) imagesListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the interpreters that the policies know, with their images",
		Args:  takes(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withEngine(cmd.Context(), func(e engine.Engine, document *policies.Document) error {
				list, err := imageRows(cmd.Context(), e, document)
				if err != nil {
					return err
				}
				if asJSON {
					return a.document(list)
				}
				rows := [][]string{{"INTERPRETER", "IMAGE", "SIZE", "DIGEST", "POLICY"}}
				for _, i := range list {
					rows = append(rows, i.cells())
				}
				return a.table(rows)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON document")
	return cmd
}

func (i imageRow) cells() []string {
	if !i.Present {
		return []string{i.Interpreter, i.Image, "-", "not here", i.Policy}
	}
	digest := strings.TrimPrefix(i.Digest, "sha256:")
	return []string{i.Interpreter, i.Image, size(i.Size), digest[:min(12, len(digest))], i.Policy}
}

func imageRows(ctx context.Context, e engine.Engine, document *policies.Document) ([]imageRow, error) {
	list := []imageRow{}
	for _, i := range document.Catalog().Interpreters {
		row := imageRow{Interpreter: i.Name, Image: i.Image, Policy: document.Name + "/" + i.Name}
		image, err := e.EnsureImage(ctx, i.Image, engine.PullNever)
		switch {
		case err == nil:
			row.Present, row.Digest, row.Size, row.Init = true, image.Digest, image.Size, image.Init
		case !errdefs.IsNotFound(err):
			return nil, err
		}
		list = append(list, row)
	}
	return list, nil
}

func (a *app) imagesPullCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pull [INTERPRETER...]",
		Short: "Fetch images that are not on this machine",
		RunE: func(cmd *cobra.Command, names []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return a.withEngine(ctx, func(e engine.Engine, document *policies.Document) error {
				return a.pull(ctx, e, document, names)
			})
		},
	}
}

func (a *app) pull(ctx context.Context, e engine.Engine, document *policies.Document, names []string) error {
	catalog := document.Catalog()
	for _, name := range names {
		if !slices.Contains(catalog.Names(), name) {
			return wrong(fmt.Sprintf("no policy knows the interpreter %q", name), "known are "+strings.Join(catalog.Names(), ", "))
		}
	}
	var failed []error
	for _, i := range catalog.Interpreters {
		if len(names) > 0 && !slices.Contains(names, i.Name) {
			continue
		}
		image, err := e.EnsureImage(ctx, i.Image, engine.PullMissing)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if _, err := fmt.Fprintf(a.out, "%s %s\n", i.Image, image.Digest); err != nil {
			return err
		}
	}
	return oneOf(failed)
}

// oneOf is the first of several errors, which tells how many there are.
func oneOf(failed []error) error {
	if len(failed) < 2 {
		return errors.Join(failed...)
	}
	return fmt.Errorf("%d failed, the first: %w", len(failed), failed[0])
}

func (a *app) imagesBuildCommand() *cobra.Command {
	var missing bool
	cmd := &cobra.Command{
		Use:   "build [NAME...]",
		Short: "Build the stock images",
		Long: `Build the stock images, as mcpx/NAME: bash, python3, node, deno and the other
small ones without NAME; browser, data and media are built when they are named.

It wants docker, and the package sources or a registry of this machine.`,
		RunE: func(cmd *cobra.Command, names []string) error {
			config, _, err := a.config()
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return a.build(ctx, config, missing, names)
		},
	}
	cmd.Flags().BoolVar(&missing, "missing", false, "build only what is not there or out of date")
	return cmd
}

// buildGrace is how long a build that was cancelled may take to end.
const buildGrace = 10 * time.Second

// build runs the recipes that this program carries.
func (a *app) build(ctx context.Context, config daemon.Config, missing bool, names []string) error {
	init, err := daemon.FindInit(config)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mcpx-images-")
	if err != nil {
		return fmt.Errorf("directory for the recipes: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // only copies
	if err := runner.Extract(dir); err != nil {
		return err
	}
	args := []string{dir + "/" + runner.Script, "--init", init}
	if missing {
		args = append(args, "--missing")
	}
	cmd := exec.CommandContext(ctx, "sh", append(args, names...)...)
	// Its temporary files lie in the directory that is removed, however it ends.
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+config.DockerHost, "TMPDIR="+dir)
	cmd.Stdout, cmd.Stderr = a.err, a.err
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = buildGrace
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return &run.Error{Code: run.CodeImageNotFound, Class: errdefs.ErrUnavailable, Message: "the images did not build: " + err.Error(), Hint: "what was wrong stands above"}
	}
	return nil
}
