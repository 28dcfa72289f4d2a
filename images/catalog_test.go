package images_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/images"
)

// stock is a small catalogue in the shape of the built-in one.
func stock() images.Catalog {
	return images.Catalog{
		Default: []string{"deno", "bun", "node"},
		Interpreters: []images.Interpreter{
			{Name: "sh", Kind: "sh", Aliases: []string{"dash"}, Ext: ".sh", Argv: []string{"sh"}},
			{Name: "bash", Kind: "bash", Extensions: []string{".sh", ".bash"}, Ext: ".sh", Argv: []string{"bash"}},
			{Name: "python3", Kind: "python3", Aliases: []string{"python"}, Extensions: []string{".py"}, Ext: ".py", Argv: []string{"python3"}},
			{Name: "data", Kind: "python3", Ext: ".py", Argv: []string{"python3", "-X", "utf8"}},
			{Name: "node", Kind: "node", Aliases: []string{"nodejs"}, Extensions: []string{".js", ".ts"}, Ext: ".ts", Argv: []string{"node", "--flag"}},
			{Name: "deno", Kind: "deno", Extensions: []string{".ts", ".tsx"}, Ext: ".ts", Argv: []string{"deno", "run", "--no-prompt", "-A"}},
			{Name: "ruby", Kind: "ruby", Extensions: []string{".rb"}, Ext: ".rb"},
			{Name: "perl", Kind: "perl", Extensions: []string{".pl"}, Ext: ".pl"},
			{Name: "lua", Kind: "lua", Extensions: []string{".lua"}, Ext: ".lua"},
		},
	}
}

func TestLookupTakesVersions(t *testing.T) {
	for name, want := range map[string]string{
		"python3": "python3", "python": "python3", "python3.11": "python3", "python3.11.2": "python3",
		"lua5.4": "lua", "ruby3": "ruby", "node22": "node", "nodejs": "node", "bash": "bash", "dash": "sh",
		"python2": "", "python2.7": "", "python3.11-dbg": "", "": "", "3": "", ".": "", ".5": "", "nosuchlang": "",
	} {
		i, ok := stock().Lookup(name)
		require.Equal(t, want != "", ok, name)
		require.Equal(t, want, i.Name, name)
	}
}

func TestExactNameBeatsVersionOfAnother(t *testing.T) {
	c := stock()
	c.Interpreters = append(c.Interpreters, images.Interpreter{Name: "python3.9", Image: "old"})
	i, ok := c.Lookup("python3.9")
	require.True(t, ok)
	require.Equal(t, "old", i.Image)
}

func TestSharedExtensionGoesToTheFirstDefault(t *testing.T) {
	for ext, want := range map[string]string{".ts": "deno", ".TS": "deno", ".js": "node", ".sh": "bash", ".py": "python3", ".zzz": "", "": ""} {
		i, _ := stock().ByExtension(ext)
		require.Equal(t, want, i.Name, ext)
	}
}

func TestNamesAndExtensionsAreSorted(t *testing.T) {
	require.Equal(t, []string{"bash", "data", "deno", "lua", "node", "perl", "python3", "ruby", "sh"}, stock().Names())
	require.Equal(t, []string{".bash", ".js", ".lua", ".pl", ".py", ".rb", ".sh", ".ts", ".tsx"}, stock().Extensions())
}
