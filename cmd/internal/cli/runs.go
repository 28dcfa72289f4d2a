package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpx/api/rest"
	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

func (a *app) runsCommand() *cobra.Command {
	var p place
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List runs, show one, follow or cancel it",
		Long: `List runs, show one, follow or cancel it.

They are asked of the configured daemon, else of the one on the usual socket, else
they are read from this machine's state directory.`,
	}
	list := a.runsListCommand(&p)
	cmd.Args, cmd.RunE = list.Args, list.RunE
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, a.runsShowCommand(&p), a.runsFramesCommand(&p), a.runsCancelCommand(&p))
	p.bind(cmd.PersistentFlags())
	return cmd
}

func (a *app) runsListCommand(p *place) *cobra.Command {
	var filter job.Filter
	var only []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List runs, the newest first",
		Args:  takes(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			states, err := parseStates(only)
			if err != nil {
				return err
			}
			filter.States = states
			return a.withRecords(cmd.Context(), p, func(r records) error {
				page, err := r.Runs(cmd.Context(), filter)
				if err != nil {
					return err
				}
				if asJSON {
					return a.document(page)
				}
				return a.listRuns(page)
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&only, "only", nil, "states to list, such as running,timed_out")
	f.StringVar(&filter.Session, "session", "", "list only this session")
	f.StringVar(&filter.Label, "label", "", "list only this label")
	f.IntVar(&filter.Limit, "limit", 50, "most runs to list")
	f.StringVar(&filter.After, "after", "", "go on after this page's end, as printed")
	f.BoolVar(&asJSON, "json", false, "print a JSON document")
	return cmd
}

func parseStates(names []string) ([]run.State, error) {
	known := []run.State{run.Queued, run.Starting, run.Running, run.Exited, run.Signalled, run.TimedOut,
		run.OOMKilled, run.OutputLimit, run.Cancelled, run.Denied, run.Failed, run.Lost}
	var states []run.State
	for _, name := range names {
		var all []string
		found := false
		for _, s := range known {
			all = append(all, string(s))
			found = found || name == string(s)
		}
		if !found {
			return nil, wrong(fmt.Sprintf("--only: %q is no state", name), "one of "+strings.Join(all, ", "))
		}
		states = append(states, run.State(name))
	}
	return states, nil
}

func (a *app) listRuns(page rest.RunPage) error {
	rows := [][]string{{"RUN", "STATE", "EXIT", "RUNTIME", "CREATED", "TOOK", "LABEL"}}
	for _, r := range page.Runs {
		rows = append(rows, []string{r.RunID, string(r.State), exitOf(r), r.Runtime,
			r.CreatedAt.Local().Format(time.DateTime), took(r), r.Label})
	}
	if err := a.table(rows); err != nil {
		return err
	}
	if page.Next != "" {
		a.say("there are more: --after %s", page.Next)
	}
	return nil
}

func exitOf(r run.Summary) string {
	switch {
	case r.ExitCode != nil:
		return strconv.Itoa(*r.ExitCode)
	case r.Signal != "":
		return r.Signal
	}
	return "-"
}

func took(r run.Summary) string {
	if !r.State.Terminal() || r.StartedAt == nil {
		return "-"
	}
	return (time.Duration(r.DurationMs) * time.Millisecond).String()
}

func (a *app) runsShowCommand(p *place) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show a run, with its result once it has ended",
		Args:  takes(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withRecords(cmd.Context(), p, func(r records) error {
				document, err := r.Run(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.document(document)
			})
		},
	}
}

// errQuiet ends the reading of frames when all that there were have come.
var errQuiet = errors.New("no more frames for now")

// lull is how long a run under way must say nothing until its frames count as read.
const lull = 500 * time.Millisecond

func (a *app) runsFramesCommand(p *place) *cobra.Command {
	var after int64
	var follow bool
	cmd := &cobra.Command{
		Use:   "frames ID",
		Short: "Print a run's frames, one JSON object a line",
		Args:  takes(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			ctx, quiet := context.WithCancelCause(ctx)
			defer quiet(nil)
			out := json.NewEncoder(a.out)
			return a.withRecords(ctx, p, func(r records) error {
				timer := time.AfterFunc(lull, func() { quiet(errQuiet) })
				defer timer.Stop()
				if follow {
					timer.Stop()
				}
				err := r.Frames(ctx, args[0], after, func(e run.Event) error {
					if !follow {
						timer.Reset(lull)
					}
					return out.Encode(e)
				})
				if errors.Is(err, errQuiet) || errors.Is(context.Cause(ctx), errQuiet) {
					return nil
				}
				return err
			})
		},
	}
	cmd.Flags().Int64Var(&after, "after", 0, "seq of the last frame that is known already")
	cmd.Flags().BoolVar(&follow, "follow", false, "go on until the run ends")
	return cmd
}

func (a *app) runsCancelCommand(p *place) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID",
		Short: "End a run",
		Args:  takes(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withRecords(cmd.Context(), p, func(r records) error {
				document, err := r.Cancel(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.document(document)
			})
		},
	}
}
