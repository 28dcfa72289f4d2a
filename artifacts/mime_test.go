package artifacts_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
)

func TestMIME(t *testing.T) {
	const png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
	s := open(t, t.TempDir(), artifacts.Options{})
	for _, c := range []struct{ given, name, content, want string }{
		{"", "shot", png, "image/png"},
		{"", "shot.txt", png, "image/png"},
		{"", "a.csv", "one column\n", "text/csv"},
		{"", "a.CSV", "", "text/csv"},
		{"", "a.json", "1", "application/json"},
		{"", "a.svg", "<!-- late --><svg/>", "image/svg+xml"},
		{"", "a.md", "# x", "text/markdown"},
		{"", "a.csv", "\x00\x01\x02", "application/octet-stream"},
		{"", "plain", "hello", "text/plain; charset=utf-8"},
		{"application/x-thing", "a.csv", png, "application/x-thing"},
		{"Text/HTML; Charset=UTF-8", "a", "", "text/html; charset=UTF-8"},
		{"nonsense", "a", png, "image/png"},
		{"text/html\r\nX-Evil: 1", "a", png, "image/png"},
		{"text/plain; a=\"b\r\nX-Evil: 1\"", "a", png, "image/png"},
		{"text/plain; a=" + strings.Repeat("x", 5000), "a", png, "text/plain"},
		{strings.Repeat("x", 5000) + "/y", "a", png, "image/png"},
	} {
		a, err := tryPut(t.Context(), s, artifacts.Meta{Name: c.name, MIME: c.given, Size: -1}, c.content)
		require.NoError(t, err)
		require.Equal(t, c.want, a.MIME, "%+v", c)
	}
}
