package artifacts_test

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
)

func TestSafeName(t *testing.T) {
	for given, want := range map[string]string{
		"a.png":                           "a.png",
		"../../etc/passwd":                "passwd",
		"/abs":                            "abs",
		`..\x`:                            "x",
		`C:\dir\f.txt`:                    "f.txt",
		"my file.txt":                     "my-file.txt",
		"测试文件.txt":                        "____.txt",
		"...":                             "artifact",
		"":                                "artifact",
		"a/":                              "artifact",
		".hidden.":                        "hidden",
		"a\r\nb\".txt":                    "a__b_.txt",
		"a\x00b":                          "a_b",
		strings.Repeat("x", 300) + ".png": strings.Repeat("x", 124) + ".png",
		strings.Repeat(".", 5000):         "artifact",
		strings.Repeat("测", 5000) + ".gz": strings.Repeat("_", 125) + ".gz",
		"a." + strings.Repeat("e", 5000):  "a." + strings.Repeat("e", 126),
	} {
		require.Equal(t, want, artifacts.SafeName(given, artifacts.DefaultNameMax), "%q", given)
	}
}

func TestDisambiguate(t *testing.T) {
	require.Equal(t, "shot.png", artifacts.Disambiguate("shot.png", 0))
	require.Equal(t, "shot-1.png", artifacts.Disambiguate("shot.png", 1))
	require.Equal(t, "shot-2", artifacts.Disambiguate("shot", 2))
}

func FuzzSafeName(f *testing.F) {
	for _, seed := range []string{"a.png", "../x", "测试.txt", "\xff", strings.Repeat("a.", 100)} {
		f.Add(seed, 128)
	}
	f.Add("x.png", -1)
	f.Add(strings.Repeat("é", 300)+".tar.gz", 0)
	f.Fuzz(func(t *testing.T, given string, limit int) {
		name := artifacts.SafeName(given, limit)
		require.NotEmpty(t, name)
		require.LessOrEqual(t, len(name), max(limit, 16))
		require.Regexp(t, `^[A-Za-z0-9._+-]+$`, name)
		require.Equal(t, name, path.Base(name))
		require.NotContains(t, []string{".", ".."}, name)
		require.False(t, strings.HasPrefix(name, ".") || strings.HasSuffix(name, "."), "%q", name)
		require.Equal(t, name, artifacts.SafeName(name, limit), "safe names stay")
	})
}
