package policies_test

import (
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/policies"
)

func TestToolRules(t *testing.T) {
	yes, no := true, false
	rules := policies.ToolRules{Policy: "p", Allow: []string{"fs.*", "web.get"}, Deny: []string{"*.delete*"}}
	strict := rules
	strict.ConfirmDestructive = true
	for name, c := range map[string]struct {
		rules                 policies.ToolRules
		server, tool          string
		readOnly, destructive *bool
		granted               bool
	}{
		"allowed":                     {rules, "fs", "read", nil, nil, true},
		"not allowed":                 {rules, "web", "post", nil, nil, false},
		"deny wins":                   {rules, "fs", "delete_all", nil, nil, false},
		"server is not a prefix":      {rules, "fs2", "read", nil, nil, false},
		"strict, says nothing":        {strict, "fs", "read", nil, nil, false},
		"strict, reads only":          {strict, "fs", "read", &yes, nil, true},
		"strict, does not destroy":    {strict, "fs", "write", nil, &no, true},
		"strict, destroys":            {strict, "fs", "write", &no, &yes, false},
		"strict, hint grants nothing": {strict, "web", "post", &yes, &no, false},
		"no rules":                    {policies.ToolRules{}, "fs", "read", &yes, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.rules.Check(c.server, c.tool, c.readOnly, c.destructive)
			require.Equal(t, c.granted, err == nil, "%v", err)
			if err != nil {
				require.True(t, errdefs.IsPermissionDenied(err))
			}
		})
	}
}

func TestBuiltinGrantsTheConfiguredTools(t *testing.T) {
	g, err := policies.Default().Evaluate(policies.Facts{Interpreter: "bash"})
	require.NoError(t, err)
	require.NoError(t, g.Tools.Check("any", "tool", nil, nil))
	require.Equal(t, "builtin/bash", g.Tools.Policy)
}
