package mcp_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDocsNameEveryToolAndArgument(t *testing.T) {
	text, err := os.ReadFile("../../docs/mcp.md")
	require.NoError(t, err)
	w := newWorld(t)
	for described, err := range w.connect("2025-11-25").Tools(t.Context(), nil) {
		require.NoError(t, err)
		require.Contains(t, string(text), "`"+described.Name+"`")
		for name := range described.InputSchema.(object)["properties"].(object) {
			require.Contains(t, string(text), "`"+name)
		}
	}
}
