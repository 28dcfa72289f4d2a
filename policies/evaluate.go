package policies

import (
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// Facts are what a grant depends on.
type Facts struct {
	Interpreter string // a rule's name
	Principal   string // who asks
	Permissions string
	Timeout     time.Duration // 0: not asked for
	Env         map[string]string
}

// Grant is what one run gets.
type Grant struct {
	Policy      string // "builtin/python3"
	Image       string
	Pull        string
	User        string
	CPUs        float64
	MemoryBytes int64
	Pids        int64
	NoFile      int64
	ShmBytes    int64
	Timeout     time.Duration
	Grace       time.Duration
	OutputKeep  int64 // bytes kept and delivered; what comes after is counted only
	OutputLimit int64 // bytes after which the run is ended
	TmpBytes    int64
	WorkBytes   int64
	OutboxBytes int64
	OutboxFiles int
	Network     string
	// Env is what the policy sets and what of the caller's passes.
	Env map[string]string
	// DroppedEnv names the caller's variables that do not pass.
	DroppedEnv  []string
	MountsAllow []MountRule
	Tools       ToolRules
	// Reasons say of every value where it comes from.
	Reasons []Reason
}

// Evaluate decides what a run gets. What cannot be granted is a *run.Error.
func (d *Document) Evaluate(f Facts) (Grant, error) {
	r, ok := d.Rule(f.Interpreter)
	if !ok {
		return Grant{}, &run.Error{Code: run.CodeUnknownInterpreter, Class: errdefs.ErrInvalidArgument, Field: "options.runtime",
			Message: fmt.Sprintf("%s has no rule for %q; known are %s", d.Name, cut(f.Interpreter), strings.Join(d.Catalog().Names(), ", "))}
	}
	if err := checkPermissions(f.Permissions, r); err != nil {
		return Grant{}, err
	}
	timeout, err := r.timeout(f.Timeout, d.Name)
	if err != nil {
		return Grant{}, err
	}
	env, dropped, err := r.environment(f.Env)
	if err != nil {
		return Grant{}, err
	}
	g := r.grant()
	g.Policy, g.Timeout, g.Env, g.DroppedEnv = d.Name+"/"+r.Name, timeout, env, dropped
	g.Tools.Policy = g.Policy
	g.Reasons = reasons(r, f)
	return g, nil
}

// grant is the rule's part of a Grant.
func (r Rule) grant() Grant {
	return Grant{
		Image: r.Image, Pull: r.Pull, User: r.User, CPUs: r.CPUs, MemoryBytes: r.MemoryBytes, Pids: r.Pids,
		NoFile: r.NoFile, ShmBytes: r.ShmBytes, Timeout: r.Timeout, Grace: r.Grace,
		OutputKeep: r.OutputKeep, OutputLimit: r.OutputLimit, TmpBytes: r.TmpBytes, WorkBytes: r.WorkBytes,
		OutboxBytes: r.OutboxBytes, OutboxFiles: r.OutboxFiles, Network: r.Network, MountsAllow: r.MountsAllow,
		Tools: ToolRules{Allow: r.ToolsAllow, Deny: r.ToolsDeny, ConfirmDestructive: r.ConfirmDestructive},
	}
}

// checkPermissions refuses every profile: no interpreter enforces one, and a
// promise of safety is kept or the run does not take place.
func checkPermissions(profile string, r Rule) error {
	if profile == "" {
		return nil
	}
	return &run.Error{Code: run.CodeUnsupportedOption, Class: errdefs.ErrPermissionDenied, Field: "options.permissions",
		Message: fmt.Sprintf("%s cannot enforce the permission profile %q, so the script is not run", r.Name, cut(profile)),
		Hint:    "leave permissions out; the container's own limits always apply"}
}

// timeout is the caller's wish, or the rule's value; never more than its ceiling.
func (r Rule) timeout(asked time.Duration, document string) (time.Duration, error) {
	switch {
	case asked < 0:
		return 0, &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: "options.timeout",
			Message: fmt.Sprintf("%s is below zero", asked)}
	case asked == 0:
		return r.Timeout, nil
	case asked > r.TimeoutMax:
		return 0, &run.Error{Code: run.CodeDenied, Class: errdefs.ErrPermissionDenied, Field: "options.timeout",
			Message: fmt.Sprintf("%s is above %s, the ceiling of policy %s/%s", asked, r.TimeoutMax, document, r.Name),
			Hint:    fmt.Sprintf("ask for at most %s, or raise timeoutMax in the policy", r.TimeoutMax)}
	}
	return asked, nil
}

func reasons(r Rule, f Facts) []Reason {
	list := r.Effective()
	for i := range list {
		if list[i].Field == "timeout" && f.Timeout > 0 {
			list[i] = Reason{Field: "timeout", Value: f.Timeout.String(), Why: "caller"}
		}
	}
	return list
}
