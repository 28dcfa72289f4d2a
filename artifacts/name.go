package artifacts

import (
	"fmt"
	"mime"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Defaults of names, in bytes.
const (
	DefaultNameMax = 128
	titleMax       = 255
	extensionMax   = 16
)

// fallbackName is that of a file whose name holds nothing usable.
const fallbackName = "artifact"

// lastComponent takes either kind of separator for one.
func lastComponent(name string) string {
	return name[strings.LastIndexAny(name, `/\`)+1:]
}

// SafeName makes a name that any file system takes and nothing interprets: the
// last component, in which [A-Za-z0-9.-_+] stay, a space is "-", anything else
// "_"; no dots at either end; at most limit bytes with the extension kept; never empty.
func SafeName(name string, limit int) string {
	safe := strings.Map(safeRune, lastComponent(name))
	safe = strings.Trim(safe, ".")
	if safe == "" {
		return fallbackName
	}
	if len(safe) <= limit {
		return safe
	}
	ext := path.Ext(safe)
	if len(ext) > extensionMax || len(ext) >= limit {
		ext = ""
	}
	return strings.TrimRight(safe[:limit-len(ext)], ".") + ext
}

func safeRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune(".-_+", r):
		return r
	case r == ' ':
		return '-'
	}
	return '_'
}

// title keeps a name readable: its last component without what cannot be shown.
func title(name string) string {
	shown := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, lastComponent(name))
	for len(shown) > titleMax {
		_, n := utf8.DecodeLastRuneInString(shown)
		shown = shown[:len(shown)-n]
	}
	return shown
}

// Disambiguate makes the n-th other name of a file: shot.png, shot-1.png.
func Disambiguate(name string, n int) string {
	if n == 0 {
		return name
	}
	ext := path.Ext(name)
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), n, ext)
}

// ContentDisposition is the header for a download (RFC 6266): always an
// attachment, for a browser must not render a stranger's bytes.
func ContentDisposition(a Artifact) string {
	name := SafeName(a.Name, DefaultNameMax) // whatever an index holds
	header := `attachment; filename="` + name + `"`
	if a.Title == "" || a.Title == name {
		return header
	}
	encoded := mime.FormatMediaType("x", map[string]string{"filename": a.Title})
	if _, value, ok := strings.Cut(encoded, "filename*="); ok {
		return header + "; filename*=" + value
	}
	return header
}
