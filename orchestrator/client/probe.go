package client

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/evanw/esbuild/pkg/api"

	"mcpx/orchestrator/run"
)

//go:embed runtime/js/launcher.js
var launcherRuntime []byte

// probed is what a script's text tells of it.
type probed struct {
	parsed      bool
	returns     bool     // at the top
	names       []string // of the client, used and not declared
	exports     []string
	openExports bool // export * from: what else is exported is not known
	imports     bool // "mcpx"
	commonJS    bool // uses what only such modules have
}

// wanted tells whether the script has to be launched.
func (p probed) wanted(r LaunchRequest) bool {
	switch {
	case len(p.names) > 0 || p.imports || r.Export != "":
		return true
	case p.returns:
		return !p.commonJS // in such a module one may return at the top
	}
	return slices.Contains(p.exports, "default")
}

// suspicious tells whether there is anything in a script for which it would be
// launched. Most scripts need not be parsed for that.
func suspicious(r LaunchRequest) bool {
	text := string(r.Text)
	return r.Export != "" || slices.ContainsFunc(append(snippetNames(r), "return", "export", "mcpx"), func(word string) bool {
		return strings.Contains(text, word)
	}) || strings.Contains(text, `\u`) // a name may be written with escapes
}

// snippetNames are those that a script may use without declaring them.
func snippetNames(r LaunchRequest) []string {
	names := append(globals(), "args")
	for _, s := range restrict(r.Servers, r.Ns) {
		if !slices.Contains(hostGlobals(), s.Namespace) {
			names = append(names, s.Namespace)
		}
	}
	return names
}

// hostGlobals are names that mean something already where scripts run. A
// namespace of that name is reached as tools.<name>.
func hostGlobals() []string {
	return strings.Fields(`
alert atob btoa caches close closed clearInterval clearTimeout confirm crypto customElements dispatchEvent escape event
frames global gc history indexedDB isNaN isFinite localStorage location name navigator onerror origin parent parseFloat
parseInt performance postMessage prompt queueMicrotask reportError screen self sessionStorage setImmediate setInterval
setTimeout status stop storage structuredClone top unescape addEventListener removeEventListener WebAssembly`)
}

// commonJSNames are those that only CommonJS modules have.
func commonJSNames() []string {
	return []string{"require", "module", "exports", "__filename", "__dirname"}
}

// probe parses the script, with the names of interest replaced where they are
// not declared, and looks which of the replacements are in what comes out.
func probe(r LaunchRequest) probed {
	mark := "mcpx_free_"
	for strings.Contains(string(r.Text), mark) {
		mark += "_"
	}
	of := snippetNames(r)
	define := map[string]string{}
	for _, name := range append(slices.Clone(of), commonJSNames()...) {
		define[name] = mark + name
	}
	built := parse(r, r.Text, define)
	p := probed{parsed: len(built.Errors) == 0}
	text := r.Text
	for _, e := range built.Errors {
		p.returns = p.returns || returnsAtTop(e)
	}
	if p.returns {
		// Within a function the rest can be seen.
		built = parse(r, wrap(text), define)
	} else if p.parsed {
		p.returns = slices.ContainsFunc(parse(r, append(slices.Clone(text), "\nexport {};"...), nil).Errors, returnsAtTop)
	}
	if len(built.OutputFiles) == 0 {
		return p
	}
	out := string(built.OutputFiles[0].Contents)
	for _, name := range of {
		if uses(out, mark+name) {
			p.names = append(p.names, name)
		}
	}
	p.commonJS = slices.ContainsFunc(commonJSNames(), func(name string) bool { return uses(out, mark+name) })
	p.readMeta(built.Metafile)
	p.openExports = strings.Contains(out, "export * from")
	return p
}

func returnsAtTop(m api.Message) bool {
	return strings.HasPrefix(m.Text, "Top-level return cannot be used")
}

// uses tells whether a replacement is read. A name that is assigned is a
// global of the script's own.
func uses(out, name string) bool {
	found := false
	for rest := out; ; {
		i := strings.Index(rest, name)
		if i < 0 {
			return found
		}
		after := rest[i+len(name):]
		if after == "" || !word(rune(after[0])) && after[0] != '$' {
			if strings.HasPrefix(after, " = ") {
				return false
			}
			found = true
		}
		rest = after
	}
}

// readMeta takes exports and imports from what esbuild says of its output.
func (p *probed) readMeta(text string) {
	var meta struct {
		Outputs map[string]struct {
			Imports []struct{ Path string }
			Exports []string
		}
	}
	if json.Unmarshal([]byte(text), &meta) != nil {
		return
	}
	for _, output := range meta.Outputs {
		p.exports = append(p.exports, output.Exports...)
		for _, imported := range output.Imports {
			p.imports = p.imports || imported.Path == "mcpx"
		}
	}
	if p.returns { // then the default export is ours
		p.exports = slices.DeleteFunc(p.exports, func(name string) bool { return name == "default" })
	}
}

func parse(r LaunchRequest, text []byte, define map[string]string) api.BuildResult {
	return api.Build(api.BuildOptions{
		Stdin:    &api.StdinOptions{Contents: string(text), Sourcefile: r.ScriptName, Loader: loader(r.ScriptName)},
		Define:   define,
		Metafile: true,
		Write:    false,
		LogLevel: api.LogLevelSilent,
		Target:   api.ESNext,
		JSX:      api.JSXPreserve,
		Charset:  api.CharsetUTF8,
		// Else it looks for one on this machine.
		TsconfigRaw: `{"compilerOptions": {"verbatimModuleSyntax": true}}`,
	})
}

func loader(name string) api.Loader {
	switch path.Ext(name) {
	case ".js", ".mjs", ".cjs", ".jsx":
		return api.LoaderJSX
	case ".tsx":
		return api.LoaderTSX
	}
	return api.LoaderTS
}

// wrapped checks a snippet that was put into a function. What was right before
// and is not now can't be in a function, as an import after other code.
func wrapped(r LaunchRequest, text []byte, before probed) error {
	for _, e := range parse(r, text, nil).Errors {
		if !onlyReturns(parse(r, r.Text, nil).Errors) {
			return nil // its interpreter tells
		}
		at := ""
		if e.Location != nil {
			at = fmt.Sprintf("%s:%d: ", r.ScriptName, e.Location.Line)
		}
		return &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument, Field: "source",
			Message: at + e.Text + " (a script that returns at its top is run as a function)",
			Hint:    "begin with the imports, export nothing, or leave out the top-level return and call result(value)"}
	}
	return nil
}

func onlyReturns(errors []api.Message) bool {
	return !slices.ContainsFunc(errors, func(m api.Message) bool { return !returnsAtTop(m) })
}
