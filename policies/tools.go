package policies

import (
	"fmt"
	"slices"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// ToolRules say which MCP tools a script may call.
type ToolRules struct {
	Policy             string // whose rules they are
	Allow              []string
	Deny               []string
	ConfirmDestructive bool
}

// Check is nil when the tool may be called. What a server says of a tool is a
// hint: it can make a call be refused, never be allowed. A tool that says
// nothing may destroy (MCP 2025-11-25, ToolAnnotations).
func (t ToolRules) Check(server, tool string, readOnly, destructive *bool) error {
	name := server + "." + tool
	match := func(pattern string) bool { return glob(pattern, name) }
	switch {
	case slices.ContainsFunc(t.Deny, match):
		return t.refuse(name, "tools.deny holds it back")
	case !slices.ContainsFunc(t.Allow, match):
		return t.refuse(name, "tools.allow does not hold it")
	case t.ConfirmDestructive && mayDestroy(readOnly, destructive):
		return t.refuse(name, "it may destroy, tools.confirmDestructive is set, and nobody can be asked here")
	}
	return nil
}

func mayDestroy(readOnly, destructive *bool) bool {
	if readOnly != nil && *readOnly {
		return false
	}
	return destructive == nil || *destructive
}

func (t ToolRules) refuse(name, why string) error {
	return &run.Error{Code: run.CodeToolDenied, Class: errdefs.ErrPermissionDenied,
		Message: fmt.Sprintf("policy %s does not grant the tool %s: %s", t.Policy, name, why)}
}
