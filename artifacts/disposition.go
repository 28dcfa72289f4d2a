package artifacts

import (
	"fmt"
	"strings"
)

// ContentDisposition is the header for a download (RFC 6266): always an
// attachment, for a browser must not render a stranger's bytes. The title comes
// along for those who read filename*; the safe name is for all others.
func ContentDisposition(a Artifact) string {
	name, shown := SafeName(a.Name, DefaultNameMax), title(a.Title) // whatever an index holds
	header := `attachment; filename="` + name + `"`
	if shown == "" || shown == name {
		return header
	}
	return header + "; filename*=utf-8''" + extValue(shown)
}

// extValue writes text as RFC 8187's value-chars: whatever is not an attr-char
// goes as a percent sign and hex.
func extValue(text string) string {
	var out strings.Builder
	for i := range len(text) {
		if c := text[i]; attrChar(c) {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

func attrChar(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return strings.IndexByte("!#$&+-.^_`|~", c) >= 0
}
