// Package images says which interpreter runs a script, and in what image. It
// decides and makes nothing: ParseShebang and Choose are pure.
package images

import (
	"path/filepath"
	"slices"
	"strings"
)

// Interpreter is one language a policy knows.
type Interpreter struct {
	// Name is unique in its catalogue and names the policy's rule.
	Name string
	// Kind is the language, where it differs from the name: "data" has kind "python3".
	Kind string
	// Aliases are further names that shebangs and callers use.
	Aliases []string
	// Extensions (".py") choose this interpreter when nothing else does.
	Extensions []string
	// Ext is what the script's file is called inside when its own name has none of Extensions.
	Ext string
	// Argv is the command line that the script's path is appended to. Its first
	// word is the program in the image; a shebang's own arguments replace the rest.
	Argv  []string
	Image string
	// Permissions are the profiles that it can enforce.
	Permissions []string
}

// Catalog is all interpreters of a policy document, in its order.
type Catalog struct {
	Interpreters []Interpreter
	// Default lists who runs a script that says nothing about itself, best
	// first; it also decides between interpreters that share an extension.
	Default []string
}

// Lookup finds an interpreter by its name, an alias, or either with a version
// ("python3.11", "lua5.4"). A major version is dropped from proper names only:
// "python" being an alias of python3 does not make python2 one.
func (c Catalog) Lookup(name string) (Interpreter, bool) {
	for _, try := range []string{name, withoutMinor(name)} {
		if i, ok := c.find(func(i Interpreter) bool { return i.Name == try || slices.Contains(i.Aliases, try) }); ok {
			return i, true
		}
	}
	bare := strings.TrimRight(withoutMinor(name), "0123456789")
	return c.find(func(i Interpreter) bool { return i.Name == bare })
}

// withoutMinor cuts "python3.11.2" to "python3".
func withoutMinor(name string) string {
	dot := strings.IndexByte(name, '.')
	if dot <= 0 || strings.Trim(name[dot:], ".0123456789") != "" {
		return name
	}
	return name[:dot]
}

// ByExtension finds who runs files that end in ext (".py").
func (c Catalog) ByExtension(ext string) (Interpreter, bool) {
	ext = strings.ToLower(ext)
	has := func(i Interpreter) bool { return slices.Contains(i.Extensions, ext) }
	for _, i := range c.defaults() {
		if has(i) {
			return i, true
		}
	}
	return c.find(has)
}

// Names lists the interpreters' names, sorted.
func (c Catalog) Names() []string {
	names := make([]string, 0, len(c.Interpreters))
	for _, i := range c.Interpreters {
		names = append(names, i.Name)
	}
	slices.Sort(names)
	return names
}

// Extensions lists every extension that chooses an interpreter, sorted.
func (c Catalog) Extensions() []string {
	var all []string
	for _, i := range c.Interpreters {
		all = append(all, i.Extensions...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// defaults are those of Default that exist.
func (c Catalog) defaults() []Interpreter {
	var list []Interpreter
	for _, name := range c.Default {
		if i, ok := c.find(func(i Interpreter) bool { return i.Name == name }); ok {
			list = append(list, i)
		}
	}
	return list
}

func (c Catalog) find(is func(Interpreter) bool) (Interpreter, bool) {
	if at := slices.IndexFunc(c.Interpreters, is); at >= 0 {
		return c.Interpreters[at], true
	}
	return Interpreter{}, false
}

// named tells whether the interpreter would take a file called name as it is.
// Deno, bun and node tell script from module and type by the extension, and
// each runs the other's plain files.
func (i Interpreter) named(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	return slices.Contains(i.Extensions, ext) || isECMAScript(ext) && isECMAScript(i.Ext)
}

func isECMAScript(ext string) bool {
	return slices.Contains([]string{".js", ".mjs", ".cjs", ".ts", ".mts", ".cts"}, ext)
}
