package policies_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/images"
	"mcpx/orchestrator/run"
	"mcpx/policies"
)

func TestGrantIsTheRule(t *testing.T) {
	g, err := policies.Default().Evaluate(policies.Facts{Interpreter: "python3", Timeout: 3 * time.Second})
	require.NoError(t, err)
	require.Equal(t, "builtin/python3", g.Policy)
	require.Equal(t, "mcpx/python3", g.Image)
	require.Equal(t, 3*time.Second, g.Timeout)
	require.Equal(t, 2*time.Second, g.Grace)
	require.Equal(t, int64(512<<20), g.MemoryBytes)
	require.Equal(t, 1000, g.OutboxFiles)
	require.NotNil(t, g.Env)
	require.Contains(t, g.Reasons, policies.Reason{Field: "timeout", Value: "3s", Why: "caller"})
	for _, field := range []string{"memory", "env.deny", "mounts.allow", "image"} {
		require.True(t, hasReason(g.Reasons, field), field)
	}
}

func hasReason(list []policies.Reason, field string) bool {
	for _, r := range list {
		if r.Field == field {
			return true
		}
	}
	return false
}

func TestTimeout(t *testing.T) {
	doc := policies.Default()
	for asked, want := range map[time.Duration]time.Duration{0: time.Minute, time.Millisecond: time.Millisecond, 10 * time.Minute: 10 * time.Minute} {
		g, err := doc.Evaluate(policies.Facts{Interpreter: "sh", Timeout: asked})
		require.NoError(t, err)
		require.Equal(t, want, g.Timeout)
	}
}

func TestRefusals(t *testing.T) {
	doc := policies.Default()
	long := strings.Repeat("x", 200<<10)
	for name, c := range map[string]struct {
		facts policies.Facts
		code  string
		class error
		field string
		says  string
	}{
		"over the ceiling":    {policies.Facts{Timeout: 10*time.Minute + 1}, run.CodeDenied, errdefs.ErrPermissionDenied, "options.timeout", "10m0s"},
		"below zero":          {policies.Facts{Timeout: -1}, run.CodeInvalidOption, errdefs.ErrInvalidArgument, "options.timeout", "below zero"},
		"permissions":         {policies.Facts{Permissions: "strict"}, run.CodeUnsupportedOption, errdefs.ErrPermissionDenied, "options.permissions", `"strict"`},
		"unknown interpreter": {policies.Facts{Interpreter: "cobol"}, run.CodeUnknownInterpreter, errdefs.ErrInvalidArgument, "options.runtime", "python3"},
		"one long value":      {policies.Facts{Env: map[string]string{"BIG": long}}, run.CodeTooLarge, errdefs.ErrOutOfRange, "options.env.BIG", "131072"},
		"NUL in a value":      {policies.Facts{Env: map[string]string{"A": "x\x00"}}, run.CodeInvalidOption, errdefs.ErrInvalidArgument, "options.env.A", "NUL"},
		"NUL in a name":       {policies.Facts{Env: map[string]string{"A\x00": "x"}}, run.CodeInvalidOption, errdefs.ErrInvalidArgument, "options.env.A\x00", "not a variable's name"},
		"= in a name":         {policies.Facts{Env: map[string]string{"A=B": "x"}}, run.CodeInvalidOption, errdefs.ErrInvalidArgument, "options.env.A=B", "not a variable's name"},
		"empty name":          {policies.Facts{Env: map[string]string{"": "x"}}, run.CodeInvalidOption, errdefs.ErrInvalidArgument, "options.env.", "empty name"},
		"all together":        {policies.Facts{Env: many(20, 60<<10)}, run.CodeTooLarge, errdefs.ErrOutOfRange, "options.env", "1048576"},
		"very many small":     {policies.Facts{Env: many(100_000, 0)}, run.CodeTooLarge, errdefs.ErrOutOfRange, "options.env", "1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.facts.Interpreter == "" {
				c.facts.Interpreter = "bash"
			}
			_, err := doc.Evaluate(c.facts)
			var known *run.Error
			require.ErrorAs(t, err, &known)
			require.ErrorIs(t, err, c.class)
			require.Equal(t, c.code, known.Code)
			require.Equal(t, c.field, known.Field)
			require.Contains(t, known.Message, c.says)
		})
	}
}

func many(n, size int) map[string]string {
	env := map[string]string{}
	for i := range n {
		env[fmt.Sprintf("V%d", i)] = strings.Repeat("x", size)
	}
	return env
}

func TestLongestValueThatTheKernelTakesPasses(t *testing.T) {
	value := strings.Repeat("x", 128<<10-len("BIG=")-1)
	g, err := policies.Default().Evaluate(policies.Facts{Interpreter: "sh", Env: map[string]string{"BIG": value}})
	require.NoError(t, err)
	require.Equal(t, value, g.Env["BIG"])
	_, err = policies.Default().Evaluate(policies.Facts{Interpreter: "sh", Env: map[string]string{"BIG": value + "x"}})
	require.ErrorIs(t, err, errdefs.ErrOutOfRange)
}

func TestEnvironment(t *testing.T) {
	caller := map[string]string{"A": "1", "PATH": "/opt", "LD_PRELOAD": "x", "MCPX_RUN": "forged", "_": "x", "NODE_OPTIONS": "--x", "PATHX": "1"}
	g, err := policies.Default().Evaluate(policies.Facts{Interpreter: "sh", Env: caller})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"A": "1", "NODE_OPTIONS": "--x", "PATHX": "1"}, g.Env)
	require.Equal(t, []string{"LD_PRELOAD", "MCPX_RUN", "PATH", "_"}, g.DroppedEnv)

	doc, err := policies.Parse("p", []byte(alone+"    env: {allow: [\"A*\", \"*_*B*C\", EXACT], deny: [ABC, \"*SECRET*\"], set: {AS: policy}}\n"))
	require.NoError(t, err)
	g, err = doc.Evaluate(policies.Facts{Interpreter: "tcl", Env: map[string]string{
		"A": "1", "AX": "1", "ABC": "1", "X_bBccC": "1", "X_C": "1", "EXACT": "1", "EXACTLY": "1", "A_SECRET_B": "1", "AS": "caller", "MCPX_A": "",
	}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"A": "1", "AX": "1", "X_bBccC": "1", "EXACT": "1", "AS": "policy"}, g.Env)
	require.Equal(t, []string{"ABC", "AS", "A_SECRET_B", "EXACTLY", "MCPX_A", "X_C"}, g.DroppedEnv)
}

func TestGrantsDoNotShareTheirEnvironment(t *testing.T) {
	doc, err := policies.Parse("p", []byte(alone+"    env: {set: {A: x}}\n"))
	require.NoError(t, err)
	first, err := doc.Evaluate(policies.Facts{Interpreter: "tcl"})
	require.NoError(t, err)
	first.Env["A"] = "changed"
	second, err := doc.Evaluate(policies.Facts{Interpreter: "tcl"})
	require.NoError(t, err)
	require.Equal(t, "x", second.Env["A"])
}

func TestExplain(t *testing.T) {
	doc := policies.Default()
	e, err := doc.Explain(images.Facts{FileName: "x.py"}, policies.Facts{Principal: "ann", Env: map[string]string{"TOKEN": "s3cret", "PATH": "/x"}})
	require.NoError(t, err)
	require.Equal(t, "builtin/python3", e.Policy)
	require.Equal(t, "extension .py", e.Why)
	require.Equal(t, "x.py", e.ScriptName)
	require.Equal(t, []string{"TOKEN"}, e.Env)
	require.Equal(t, []string{"PATH"}, e.DroppedEnv)
	require.Equal(t, "env_dropped", e.Warnings[0].Code)
	require.Nil(t, e.Denied)
	text, err := json.Marshal(e)
	require.NoError(t, err)
	require.NotContains(t, string(text), "s3cret")
	require.Contains(t, string(text), `"field":"memory","value":"512MiB"`)
}

func TestExplainTellsARefusal(t *testing.T) {
	e, err := policies.Default().Explain(images.Facts{Runtime: "node"}, policies.Facts{Timeout: time.Hour})
	require.NoError(t, err)
	require.Equal(t, run.CodeDenied, e.Denied.Code)
	require.NotEmpty(t, e.Settings)
	require.Equal(t, []string{}, e.Env)
	_, err = policies.Default().Explain(images.Facts{Runtime: "cobol"}, policies.Facts{})
	require.ErrorIs(t, err, errdefs.ErrInvalidArgument)
}
