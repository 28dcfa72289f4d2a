package tool_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/tool"
)

func TestIdentifiersAreSafeWords(t *testing.T) {
	for name, want := range map[string]string{
		"take_screenshot": "take_screenshot",
		"chrome-devtools": "chrome_devtools",
		"getUser":         "getUser",
		"a.b/c d":         "a_b_c_d",
		"2fa":             "_2fa",
		"delete":          "delete_",
		"from":            "from_",
		"fetch":           "fetch_",
		"tools":           "tools_",
	} {
		require.Equal(t, map[string]string{name: want}, tool.Namespaces([]string{name}, nil))
	}
	for name, want := range map[string]string{
		"fetch": "fetch", "delete": "delete_", "get": "get", "__proto__": "__proto___", "then": "then_",
	} {
		require.Equal(t, map[string]string{name: want}, tool.Functions([]string{name}, nil))
	}
}

func TestNoTwoNamesShareAnIdentifier(t *testing.T) {
	names := []string{"a-b", "a.b", "a_b", "a b", "测试", "試験", "", "-", "delete", "delete_"}
	ids := tool.Namespaces(names, nil)
	require.Equal(t, "a_b", ids["a_b"], "the name that is its own identifier has it")
	require.Equal(t, "delete_", ids["delete_"])
	seen := map[string]bool{}
	for _, id := range ids {
		require.False(t, seen[id], id)
		seen[id] = true
	}
	reversed := make([]string, 0, len(names))
	for i := range names {
		reversed = append(reversed, names[len(names)-1-i])
	}
	require.Equal(t, ids, tool.Namespaces(reversed, nil), "order does not matter")
}

func TestRecordedIdentifierStaysWhenABetterNameComes(t *testing.T) {
	first := tool.Namespaces([]string{"a-b"}, nil)
	require.Equal(t, "a_b", first["a-b"])
	next := tool.Namespaces([]string{"a_b", "a-b"}, first)
	require.Equal(t, "a_b", next["a-b"])
	require.Regexp(t, `^a_b_[0-9a-f]{6}$`, next["a_b"])
}

func FuzzIdentifiers(f *testing.F) {
	f.Add("a-b", "a_b", "a.b")
	f.Add("", "delete", "测试")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		safe := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
		ids := tool.Namespaces([]string{a, b, c}, nil)
		owners := map[string]string{}
		for name, id := range ids {
			require.Regexp(t, safe, id)
			require.LessOrEqual(t, len(id), 80)
			require.NotContains(t, owners, id)
			owners[id] = name
		}
		require.Equal(t, ids, tool.Namespaces([]string{c, b, a}, nil))
		require.Equal(t, ids, tool.Namespaces([]string{a, b, c}, ids))
	})
}
