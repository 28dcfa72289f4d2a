package client_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/client"
	"mcpx/orchestrator/tool"
)

func TestDeclarationsAreOfOneNamespace(t *testing.T) {
	server := tool.Server{Name: "my-files", Namespace: "my_files", Tools: []tool.Tool{{
		Server: "my-files", Namespace: "my_files", Name: "read-file", Function: "read_file", Description: "Reads a file",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`),
	}}}
	for lang, want := range map[string][]string{
		"":                {"declare const my_files: $my_files.Namespace;", "/** Reads a file */", "readonly read_file: Tool<{", "path: string;"},
		client.TypeScript: {"readonly read_file: Tool<{"},
		client.Python:     {"class _my_files:", "def __call__(self, *, path: str)"},
	} {
		text, err := client.Declarations(lang, server)
		require.NoError(t, err)
		for _, one := range want {
			require.Contains(t, text, one)
		}
		require.NotContains(t, text, "ToolError", "the runtime's own are not among them")
	}
	_, err := client.Declarations("cobol", server)
	require.ErrorContains(t, err, `"cobol"`)
}
