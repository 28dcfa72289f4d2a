package upstream_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page's example is one that is read, and every member of the block that
// the parser suggests has a row.
func TestDocsAreRight(t *testing.T) {
	text, err := os.ReadFile("../../docs/mcp-servers.md")
	require.NoError(t, err)
	example := regexp.MustCompile("(?s)```jsonc\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, example)
	file, err := parse(t, string(example[1]))
	require.NoError(t, err)
	require.Empty(t, file.Warnings)
	require.Len(t, file.Servers, 3)

	_, err = parse(t, `{"mcpServers":{"a":{"command":"x","mcpx":{"nonsense":1}}}}`)
	e := problem(t, err, "invalid_option", err)
	members := regexp.MustCompile(`\w+`).FindAllString(e.Hint[len("known are "):], -1)
	require.Len(t, members, 12)
	for _, member := range members {
		require.Regexp(t, "(?m)^\\|.*`"+member+"`.*\\|.*\\|.*\\|$", string(text))
	}
}
