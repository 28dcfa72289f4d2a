package artifacts_test

import (
	"mime"
	"net/http"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

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
	f.Fuzz(func(t *testing.T, given string, limit int) {
		limit = 16 + (limit&0x7fffffff)%240
		name := artifacts.SafeName(given, limit)
		require.NotEmpty(t, name)
		require.LessOrEqual(t, len(name), limit)
		require.Equal(t, name, path.Base(name))
		require.NotContains(t, []string{".", ".."}, name)
		require.False(t, strings.HasPrefix(name, ".") || strings.HasSuffix(name, "."), "%q", name)
		require.Equal(t, name, artifacts.SafeName(name, limit), "safe names stay")
	})
}

func FuzzContentDisposition(f *testing.F) {
	f.Add("a.png", "a.png")
	f.Add("____.txt", "测试文件.txt")
	f.Add("x", "a\"\r\nSet-Cookie: x")
	f.Fuzz(func(t *testing.T, name, title string) {
		header := artifacts.ContentDisposition(artifacts.Artifact{Name: name, Title: title})
		require.NotContains(t, header, "\n")
		require.NotContains(t, header, "\r")
		kind, _, err := mime.ParseMediaType(header)
		require.NoError(t, err, "%q", header)
		require.Equal(t, "attachment", kind)
		require.True(t, utf8.ValidString(header) || !utf8.ValidString(title))
		h := http.Header{}
		h.Set("Content-Disposition", header)
		require.Equal(t, header, h.Get("Content-Disposition"))
	})
}

func TestTitleOfAnyScriptSurvivesTheDownload(t *testing.T) {
	header := artifacts.ContentDisposition(artifacts.Artifact{Name: "____.txt", Title: "测试文件.txt"})
	_, params, err := mime.ParseMediaType(header)
	require.NoError(t, err)
	require.Contains(t, header, `filename="____.txt"`)
	require.Contains(t, header, "filename*=utf-8''%E6%B5%8B")
	require.NotEmpty(t, params)
}
