package tool

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// maxIdentifier bounds what a script has to type.
const maxIdentifier = 64

// Namespaces gives every server an identifier that is safe in TypeScript,
// Python and sh, as a bare word too. No two names get the same one: a name that
// loses is suffixed by a hash of itself, so that the answer depends neither on
// order nor on luck. A name that is its own identifier never loses against one
// that was changed.
//
// recorded are the identifiers given before. They stay, for scripts use them;
// so a name that comes later may have to yield to one that is gone.
func Namespaces(names []string, recorded map[string]string) map[string]string {
	return identify(names, recorded, append(words(), globals()...))
}

// Functions does the same for the tools of one server, whose identifiers stand
// behind a dot only.
func Functions(names []string, recorded map[string]string) map[string]string {
	return identify(names, recorded, append(words(), members()...))
}

func identify(names []string, recorded map[string]string, reserved []string) map[string]string {
	taken := map[string]string{}
	kept := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		// Two records may disagree when they come from two places.
		id := recorded[name]
		if _, used := taken[id]; !used && word(id) {
			kept[name], taken[id] = id, name
		}
	}
	sorted := slices.Clone(names)
	slices.SortFunc(sorted, func(a, b string) int {
		return cmp.Or(cmp.Compare(changed(a, reserved), changed(b, reserved)), cmp.Compare(a, b))
	})
	out := make(map[string]string, len(names))
	for _, name := range slices.Compact(sorted) {
		id, known := kept[name]
		if !known {
			id = free(name, identifier(name, reserved), taken)
		}
		out[name], taken[id] = id, name
	}
	return out
}

func changed(name string, reserved []string) int {
	if identifier(name, reserved) == name {
		return 0
	}
	return 1
}

// word reports whether a recorded identifier is one: the record is a file.
func word(id string) bool {
	outside := func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	return id != "" && (id[0] < '0' || id[0] > '9') && !strings.ContainsFunc(id, outside)
}

func free(name, wanted string, taken map[string]string) string {
	id := wanted
	for length := 6; ; length += 2 {
		if _, used := taken[id]; !used {
			return id
		}
		id = suffixed(wanted, name, length)
	}
}

// identifier replaces what may not stand in a word and avoids reserved words.
func identifier(name string, reserved []string) string {
	var b strings.Builder
	meaning := false
	for _, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		digit := r >= '0' && r <= '9'
		if b.Len() == 0 && digit {
			b.WriteByte('_')
		}
		if letter || digit || r == '_' {
			b.WriteRune(r)
			meaning = meaning || r != '_'
		} else {
			b.WriteByte('_')
		}
	}
	id := b.String()
	switch {
	case !meaning:
		return suffixed("t", name, 8)
	case len(id) > maxIdentifier:
		return suffixed(id[:maxIdentifier-9], name, 8)
	case slices.Contains(reserved, id):
		return id + "_"
	}
	return id
}

func suffixed(id, name string, length int) string {
	sum := sha256.Sum256([]byte(name))
	return id + "_" + hex.EncodeToString(sum[:])[:length]
}

// words are the reserved ones of TypeScript and Python.
func words() []string {
	return strings.Fields(`
and arguments as assert async await break case catch class const continue debugger def default del
delete do elif else enum eval except export extends False false finally for from function global if
implements import in instanceof interface is lambda let new None nonlocal not null or package pass
private protected public raise return static super switch this throw True true try typeof undefined
var void while with yield`)
}

// members mean something to the languages on any object.
func members() []string {
	return strings.Fields(`constructor prototype then toString toJSON valueOf hasOwnProperty
__proto__ __class__ __dict__ __init__ __getattr__ __call__`)
}

// globals are names that a bare namespace would hide from the script.
func globals() []string {
	return strings.Fields(`globalThis window document console process fetch require module exports self
Deno Bun Buffer Object Array String Number Boolean Symbol Promise Math JSON Date Error Map Set RegExp
Reflect Proxy Intl URL Infinity NaN any never unknown number string boolean object symbol type
print exec list dict str int set input len open
tools emit artifact log result ToolError mcpx args`)
}
