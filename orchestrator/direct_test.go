package orchestrator_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
	"mcpx/policies"
)

// refreshing is a stock that can be asked anew.
type refreshing struct {
	*stock
	refreshed []string
}

func (r *refreshing) Refresh(_ context.Context, servers ...string) error {
	r.refreshed = append(r.refreshed, servers...)
	return nil
}

func direct(t *testing.T, policy string) (*orchestrator.Direct, *refreshing) {
	t.Helper()
	document, err := policies.Parse("test.yaml", []byte("version: 1\nextends: builtin\n"+policy))
	require.NoError(t, err)
	tools := &refreshing{stock: &stock{}}
	return &orchestrator.Direct{Upstream: tools, Policies: document, Audit: tools, AuditKey: []byte("key"), Log: slog.New(slog.DiscardHandler)}, tools
}

func TestDirectCallIsRecordedWithoutItsArguments(t *testing.T) {
	d, tools := direct(t, "")
	call := tool.Call{Server: "web", Tool: "get", Arguments: json.RawMessage(`{"password":"hunter2"}`), Principal: "alice", Session: "s", Progress: func(float64, float64, string) {}}
	result, err := d.Call(t.Context(), call)
	require.NoError(t, err)
	require.Contains(t, string(result.Raw), "secret get")
	require.Equal(t, "alice", tools.called[0].Principal)
	require.Equal(t, "s", tools.called[0].Session)
	record := tools.audit[0]
	require.True(t, record.Call.OK)
	require.Equal(t, "alice", record.Principal)
	require.Empty(t, record.RunID)
	require.Len(t, record.Call.ArgsHash, 32)
	require.EqualValues(t, len(call.Arguments), record.RequestBytes)
	require.EqualValues(t, len(result.Raw), record.ResponseBytes)

	call.Tool = "nosuch"
	_, err = d.Call(t.Context(), call)
	require.Error(t, err)
	require.Equal(t, run.CodeNotFound, tools.audit[1].Call.Error)
}

func TestDirectCallGetsNoMoreThanScripts(t *testing.T) {
	for name, c := range map[string]struct {
		policy  string
		granted bool
	}{
		"nobody":    {"defaults:\n  tools:\n    deny: [\"web.*\"]\n", false},
		"one":       {"defaults:\n  tools:\n    deny: [\"web.*\"]\ninterpreters:\n  bash:\n    tools:\n      deny: []\n", true},
		"everybody": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			d, tools := direct(t, c.policy)
			servers, err := d.Servers(t.Context(), "web")
			require.NoError(t, err)
			require.Equal(t, c.granted, len(servers[0].Tools) > 0)
			_, err = d.Call(t.Context(), tool.Call{Server: "web", Tool: "get", Progress: func(float64, float64, string) {}})
			_, typesErr := d.Types(t.Context(), "web", "", "get")
			if c.granted {
				require.NoError(t, errors.Join(err, typesErr))
				return
			}
			for _, err := range []error{err, typesErr} {
				known, ok := errors.AsType[*run.Error](err)
				require.True(t, ok)
				require.Equal(t, run.CodeToolDenied, known.Code)
			}
			require.Empty(t, tools.called)
			require.Equal(t, run.CodeToolDenied, tools.audit[0].Call.Error)
		})
	}
}

func TestDirectDescribes(t *testing.T) {
	d, tools := direct(t, "")
	all, err := d.Servers(t.Context(), "")
	require.NoError(t, err)
	require.Greater(t, len(all), 1)
	_, err = d.Servers(t.Context(), "nosuch")
	require.Error(t, err)
	hits, err := d.Search(t.Context(), "get", 1)
	require.NoError(t, err)
	require.Equal(t, "get", hits[0].Tool.Name)
	text, err := d.Types(t.Context(), "web", "", "get")
	require.NoError(t, err)
	require.Contains(t, text, "declare const web")
	_, err = d.Types(t.Context(), "web", "", "nosuch")
	require.Error(t, err)
	_, err = d.Types(t.Context(), "nosuch", "")
	require.Error(t, err)
	require.NoError(t, d.Refresh(t.Context(), "web"))
	require.Equal(t, []string{"web"}, tools.refreshed)
}
