package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"mcpx/artifacts"
	"mcpx/orchestrator/run"
)

func (a *app) artifactsCommand() *cobra.Command {
	var p place
	cmd := &cobra.Command{
		Use:   "artifacts",
		Short: "List and fetch the files that scripts left",
		Long: `List and fetch the files that scripts left.

They are asked of the configured daemon, else of the one on the usual socket, else
they are read from this machine's state directory.`,
		Args: takes(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	p.bind(cmd.PersistentFlags())
	cmd.AddCommand(a.artifactsListCommand(&p), a.artifactsGetCommand(&p))
	return cmd
}

func (a *app) artifactsListCommand(p *place) *cobra.Command {
	var filter artifacts.Filter
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List artifacts, the newest first",
		Args:  takes(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withRecords(cmd.Context(), p, func(r records) error {
				page, err := r.Artifacts(cmd.Context(), filter)
				if err != nil {
					return err
				}
				if asJSON {
					return a.document(page)
				}
				rows := [][]string{{"ARTIFACT", "NAME", "SIZE", "TYPE", "CREATED", "RUN"}}
				for _, d := range page.Artifacts {
					rows = append(rows, []string{d.ID, d.Name, size(d.Size), d.MIME, d.CreatedAt.Local().Format(time.DateTime), d.Run})
				}
				if err := a.table(rows); err != nil {
					return err
				}
				if page.Next != "" {
					a.say("there are more: --after %s", page.Next)
				}
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&filter.Run, "run", "", "list only what this run left")
	f.StringVar(&filter.Session, "session", "", "list only this session")
	f.IntVar(&filter.Limit, "limit", 50, "most artifacts to list")
	f.StringVar(&filter.After, "after", "", "go on after this page's end, as printed")
	f.BoolVar(&asJSON, "json", false, "print a JSON document")
	return cmd
}

func (a *app) artifactsGetCommand(p *place) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Fetch an artifact, whole or not at all",
		Long: `Fetch an artifact, whole or not at all: its bytes are checked before its file has a
name. Without -o the file gets the artifact's own name, in this directory, and none
is overwritten.`,
		Args: takes(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return a.withRecords(ctx, p, func(r records) error { return a.fetch(ctx, r, args[0], output) })
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write, which is replaced; - for standard output")
	return cmd
}

func (a *app) fetch(ctx context.Context, r records, id, output string) error {
	artifact, body, err := r.Artifact(ctx, id)
	if err != nil {
		return err
	}
	defer body.Close()
	if output == "-" {
		return copyWhole(a.out, body, artifact)
	}
	path, err := saveAs(body, artifact, output)
	if err != nil {
		return fmt.Errorf("artifact %s: %w", id, err)
	}
	_, err = fmt.Fprintln(a.out, path)
	return err
}

// copyWhole fails when what came is not what the store has.
func copyWhole(to io.Writer, from io.Reader, artifact run.Artifact) error {
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, hash), from)
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); n != artifact.Size || got != artifact.SHA256 {
		return fmt.Errorf("%d bytes with sha256 %s came instead of %d with %s: %w", n, got, artifact.Size, artifact.SHA256, errdefs.ErrDataLoss)
	}
	return nil
}

// saveAs writes the file that was asked for, or one in this directory.
func saveAs(body io.Reader, artifact run.Artifact, output string) (string, error) {
	if output == "" {
		return save(body, artifact, ".", func(temporary string) (string, error) { return nameFresh(temporary, ".", artifact.Name) })
	}
	return save(body, artifact, filepath.Dir(output), func(temporary string) (string, error) {
		return output, os.Rename(temporary, output)
	})
}

// save writes a file in dir that gets its name when it is whole, and yields its path.
func save(body io.Reader, artifact run.Artifact, dir string, name func(temporary string) (string, error)) (string, error) {
	// Not CreateTemp, whose mode heeds no umask.
	temporary, err := os.OpenFile(filepath.Join(dir, ".mcpx-"+rand.Text()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return "", err
	}
	defer os.Remove(temporary.Name()) //nolint:errcheck // it is gone when all went well
	err = copyWhole(temporary, body, artifact)
	if err == nil {
		err = temporary.Sync()
	}
	if err := errors.Join(err, temporary.Close()); err != nil {
		return "", err
	}
	return name(temporary.Name())
}

// mostNames is how many names are tried for a file.
const mostNames = 1000

// nameFresh gives a file the first name in dir that nobody has. The name came
// from a daemon, so it is cleaned again.
func nameFresh(path, dir, name string) (string, error) {
	name = artifacts.SafeName(name, artifacts.DefaultNameMax)
	for n := range mostNames {
		try := filepath.Join(dir, artifacts.Disambiguate(name, n))
		err := os.Link(path, try)
		if !errors.Is(err, fs.ErrExist) {
			return try, err
		}
	}
	return "", fmt.Errorf("%s and %d names like it are taken; give one with -o", name, mostNames-1)
}

// keeper fetches what a run left (records, or what a run was carried out by).
type keeper interface {
	Artifact(ctx context.Context, id string) (run.Artifact, io.ReadCloser, error)
}

// keepAll puts everything that a run left into the directory that was asked
// for, also when the script failed.
func (a *app) keepAll(ctx context.Context, w *wishes, from keeper, result run.Result) error {
	if w.artifactsDir == "" || len(result.Artifacts) == 0 {
		return nil
	}
	if err := os.MkdirAll(w.artifactsDir, 0o777); err != nil {
		return fmt.Errorf("directory for artifacts: %w", err)
	}
	for _, ref := range result.Artifacts {
		path, err := a.keep(ctx, w.artifactsDir, from, ref.ID)
		if err != nil {
			return fmt.Errorf("artifact %s: %w", ref.Name, err)
		}
		if !w.quiet {
			a.say("kept %s, %s", path, size(ref.Size))
		}
	}
	return nil
}

func (a *app) keep(ctx context.Context, dir string, from keeper, id string) (string, error) {
	artifact, body, err := from.Artifact(ctx, id)
	if err != nil {
		return "", err
	}
	defer body.Close()
	return save(body, artifact, dir, func(temporary string) (string, error) { return nameFresh(temporary, dir, artifact.Name) })
}
