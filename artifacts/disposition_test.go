package artifacts_test

import (
	"mime"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
)

func TestContentDisposition(t *testing.T) {
	for title, want := range map[string]string{
		"":              `attachment; filename="n.txt"`,
		"n.txt":         `attachment; filename="n.txt"`,
		"..":            `attachment; filename="n.txt"`,
		"测.txt":         `attachment; filename="n.txt"; filename*=utf-8''%E6%B5%8B.txt`,
		"my file.txt":   `attachment; filename="n.txt"; filename*=utf-8''my%20file.txt`,
		`a"; x=".txt`:   `attachment; filename="n.txt"; filename*=utf-8''a%22%3B%20x%3D%22.txt`,
		"a\r\nX: y":     `attachment; filename="n.txt"; filename*=utf-8''a__X%3A%20y`,
		"../../up.txt":  `attachment; filename="n.txt"; filename*=utf-8''up.txt`,
		"50%*'.txt":     `attachment; filename="n.txt"; filename*=utf-8''50%25%2A%27.txt`,
		"txt.\u202eexe": `attachment; filename="n.txt"; filename*=utf-8''txt._exe`,
	} {
		require.Equal(t, want, artifacts.ContentDisposition(artifacts.Artifact{Name: "n.txt", Title: title}), "%q", title)
	}
}

// Whatever an index holds, the header is one line of ASCII that says attachment
// and two names without a path.
func FuzzContentDisposition(f *testing.F) {
	f.Add("a.png", "a.png")
	f.Add("____.txt", "测试文件.txt")
	f.Add("x", "a\"\r\nSet-Cookie: x")
	f.Add("x\"; filename=\"y", "\xff\xfe/..")
	f.Add("x", strings.Repeat("测", 200)+".gz")
	f.Fuzz(func(t *testing.T, name, title string) {
		header := artifacts.ContentDisposition(artifacts.Artifact{Name: name, Title: title})
		require.Regexp(t, `^attachment; filename="[A-Za-z0-9._+-]+"(; filename\*=utf-8''[A-Za-z0-9!#$&+.^_`+"`"+`|~%-]+)?$`, header)
		_, ext, both := strings.Cut(header, "filename*=utf-8''")
		_, params, err := mime.ParseMediaType(header)
		if !both {
			require.NoError(t, err)
			return
		}
		shown, err := url.PathUnescape(ext)
		require.NoError(t, err)
		require.True(t, utf8.ValidString(shown))
		require.LessOrEqual(t, len(shown), 255)
		require.NotContains(t, shown, "/")
		require.NotContains(t, shown, `\`)
		require.NotContains(t, []string{".", ".."}, shown)
		require.NotNil(t, params)
	})
}
