package artifacts

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Lengths of names, in bytes.
const (
	DefaultNameMax = 128
	nameMin        = 16 // a limit below it is raised to it
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
// "_"; no dots at either end; at most limit bytes (and limit at least 16) with
// the extension kept; never empty.
func SafeName(name string, limit int) string {
	safe := strings.Map(safeRune, lastComponent(name))
	safe = strings.Trim(safe, ".")
	if safe == "" {
		return fallbackName
	}
	limit = max(limit, nameMin)
	if len(safe) <= limit {
		return safe
	}
	ext := extension(safe)
	if len(ext) >= limit {
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

// extension is what a name that is cut keeps; none if it is too long to be one.
func extension(name string) string {
	if ext := path.Ext(name); len(ext) <= extensionMax {
		return ext
	}
	return ""
}

// title keeps a name readable: its last component without what cannot be shown
// or turns text around. "" when nothing is left to read.
func title(name string) string {
	shown := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, lastComponent(name))
	if strings.Trim(shown, ". ") == "" {
		return ""
	}
	if len(shown) <= titleMax {
		return shown
	}
	ext := extension(shown)
	return strings.ToValidUTF8(shown[:titleMax-len(ext)], "") + ext
}

// Disambiguate makes the n-th other name of a file: shot.png, shot-1.png.
func Disambiguate(name string, n int) string {
	if n == 0 {
		return name
	}
	ext := path.Ext(name)
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(name, ext), n, ext)
}
