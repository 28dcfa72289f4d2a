package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"mcpx/cmd/internal/daemon"
	"mcpx/orchestrator/engine"
	"mcpx/policies"
)

// Outcomes of a check. Only a failure keeps scripts from running.
const (
	checkOK   = "ok"
	checkWarn = "warn"
	checkFail = "fail"
)

// check is one line of the doctor's report.
type check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"` // how to mend it
}

// doctorTimeout bounds the whole examination.
const doctorTimeout = 30 * time.Second

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look whether scripts can run here, and tell how to mend what keeps them from it",
		Args:  takes(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, _, err := a.config()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), doctorTimeout)
			defer cancel()
			checks := a.examine(ctx, config)
			if err := a.reportChecks(checks, asJSON); err != nil {
				return err
			}
			for _, c := range checks {
				if c.Status == checkFail {
					return exitCode(1)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON document")
	return cmd
}

func (a *app) reportChecks(checks []check, asJSON bool) error {
	if asJSON {
		return a.document(checks)
	}
	for _, c := range checks {
		line := fmt.Sprintf("%-4s  %-12s  %s", c.Status, c.Name, visible(c.Detail))
		if c.Hint != "" {
			line += "\n" + strings.Repeat(" ", 20) + "→ " + visible(c.Hint)
		}
		if _, err := fmt.Fprintln(a.out, line); err != nil {
			return err
		}
	}
	return nil
}

// examine makes every check that can be made.
func (a *app) examine(ctx context.Context, config daemon.Config) []check {
	all := []check{checkInit(config), checkState(config), checkDisk(config)}
	document, policy := checkPolicy(config)
	all = append(all, policy)
	if document != nil {
		all = append(all, checkEngine(ctx, config, document)...)
	}
	return append(all, a.checkDaemon(ctx, config))
}

func checkInit(config daemon.Config) check {
	path, err := daemon.FindInit(config)
	if err != nil {
		return check{"init", checkWarn, err.Error(), "needed for images that are not stock; make build puts it beside mcpx, --init names it"}
	}
	return check{Name: "init", Status: checkOK, Detail: path}
}

func checkState(config daemon.Config) check {
	hint := "choose another directory with --state or MCPX_STATE, or give this user the right to write there"
	if err := os.MkdirAll(config.State, 0o700); err != nil {
		return check{"state", checkFail, err.Error(), hint}
	}
	probe, err := os.CreateTemp(config.State, ".doctor-")
	if err != nil {
		return check{"state", checkFail, err.Error(), hint}
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return check{"state", checkFail, err.Error(), hint}
	}
	return check{Name: "state", Status: checkOK, Detail: config.State + " can be written"}
}

// enoughDisk is what artifacts, logs and the images of a day need.
const enoughDisk = 2 << 30

func checkDisk(config daemon.Config) check {
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Clean(config.State), &fs); err != nil {
		return check{"disk", checkWarn, fmt.Sprintf("%s: %v", config.State, err), ""}
	}
	free := int64(fs.Bavail) * fs.Bsize
	c := check{Name: "disk", Status: checkOK, Detail: size(free) + " free at " + config.State}
	if free < enoughDisk {
		c.Status, c.Hint = checkWarn, "make room, or move the state directory with --state"
	}
	return c
}

func checkPolicy(config daemon.Config) (*policies.Document, check) {
	document, err := daemon.LoadPolicies(config)
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return nil, check{"policy", checkFail, first, "mcpx policy check FILE tells all that is wrong"}
	}
	c := check{Name: "policy", Status: checkOK, Detail: fmt.Sprintf("%s, %d interpreters", document.Name, len(document.Rules()))}
	if n := len(document.Warnings); n > 0 {
		c.Status, c.Hint = checkWarn, fmt.Sprintf("%d warnings: mcpx policy check FILE", n)
	}
	return document, c
}

func checkEngine(ctx context.Context, config daemon.Config, document *policies.Document) []check {
	hint := "start docker, or name its socket with --docker-host or DOCKER_HOST"
	if config.Engine == daemon.EngineOCI {
		hint = "./setup.sh crun installs what it needs; it makes containers itself, as root"
	}
	e, err := daemon.NewEngine(config, document, slog.New(slog.DiscardHandler))
	if err != nil {
		return []check{{"engine", checkFail, err.Error(), hint}}
	}
	defer e.Close() //nolint:errcheck // it was only asked
	info, err := e.Info(ctx)
	if err != nil {
		return []check{{"engine", checkFail, err.Error(), hint}}
	}
	all := []check{{Name: "engine", Status: checkOK, Detail: fmt.Sprintf("%s %s on %s/%s", e.Name(), info.Version, info.OS, info.Arch)}}
	all = append(all, checkLimits(info)...)
	return append(all, checkImages(ctx, e, document))
}

func checkLimits(info engine.Info) []check {
	if !info.Enforces {
		return []check{{"isolation", checkFail, "this engine isolates nothing; it is for tests", "--engine docker"}}
	}
	var missing []string
	for _, limit := range []struct {
		name string
		has  bool
	}{{"memory", info.MemoryLimit}, {"pids", info.PidsLimit}, {"cpu", info.CPULimit}} {
		if !limit.has {
			missing = append(missing, limit.name)
		}
	}
	limits := check{Name: "limits", Status: checkOK, Detail: "memory, pids and cpu are limited by cgroups"}
	if len(missing) > 0 {
		limits = check{"limits", checkFail, "the engine cannot limit " + strings.Join(missing, ", "), "enable these cgroup controllers on the machine"}
	}
	seccomp := check{Name: "seccomp", Status: checkOK, Detail: "system calls are filtered"}
	if !info.Seccomp {
		seccomp = check{"seccomp", checkFail, "the engine filters no system calls", "use a kernel and a docker with seccomp, and its default profile"}
	}
	return []check{limits, seccomp}
}

func checkImages(ctx context.Context, e engine.Engine, document *policies.Document) check {
	var there, missing []string
	for _, i := range document.Catalog().Interpreters {
		if _, err := e.EnsureImage(ctx, i.Image, engine.PullNever); err != nil {
			missing = append(missing, i.Name)
		} else {
			there = append(there, i.Name)
		}
	}
	c := check{Name: "images", Status: checkOK, Detail: "for " + strings.Join(there, ", ")}
	switch {
	case len(there) == 0:
		c = check{"images", checkFail, "no interpreter has its image here", "mcpx images build"}
	case len(missing) > 0:
		c.Status, c.Detail = checkWarn, c.Detail+"; none for "+strings.Join(missing, ", ")
		c.Hint = "mcpx images build " + strings.Join(missing, " ") + ", or mcpx images pull"
	}
	return c
}

func (a *app) checkDaemon(ctx context.Context, config daemon.Config) check {
	endpoint := config.Endpoint
	if endpoint == "" {
		endpoint = daemon.DefaultEndpoint(a.process)
	}
	remote, err := a.client(config, endpoint)
	if err != nil {
		return check{"daemon", checkFail, err.Error(), ""}
	}
	defer remote.Close()
	if err := remote.Health(ctx); err != nil {
		c := check{"daemon", checkOK, "none at " + endpoint + "; mcpx exec and run need none", ""}
		if config.Endpoint != "" {
			c = check{"daemon", checkFail, err.Error(), "start it with mcpx serve, or unset daemon.endpoint"}
		}
		return c
	}
	if err := remote.Ready(ctx); err != nil {
		return check{"daemon", checkWarn, fmt.Sprintf("%s answers and cannot run scripts: %v", endpoint, err), "see the other lines, and the daemon's log"}
	}
	return check{Name: "daemon", Status: checkOK, Detail: endpoint + " is ready"}
}
