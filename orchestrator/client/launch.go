package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

// LaunchRequest is a script that is about to run.
type LaunchRequest struct {
	Kind       string // of its interpreter
	ScriptName string // what its file is called in the job's directory
	Text       []byte
	Servers    []tool.Server
	Ns         []string // as for Files
	// Export is the exported function to call, "" for the default one if there is one.
	Export string
	// CaptureConsole also hands what goes to console.debug, info, warn and
	// error to the run's log.
	CaptureConsole bool
}

// Launched is how to run a script that can't be run as it is.
type Launched struct {
	// Text is to stand in the script's file: the caller's, or a changed one with
	// the same lines.
	Text []byte
	// Files lie beside the script and the client. One that the caller sends
	// under the same path is to be preferred.
	Files []engine.File
	// Entry is the file to run in the script's place, in the job's directory.
	Entry string
	// Env is to be added to the script's environment.
	Env map[string]string
}

// Launch finds out whether a script is a snippet, or a module of which a
// function is to be called, and how it is run then. A script that uses nothing
// of the client is neither, and one that is not well formed is left to its
// interpreter, whose message is the best; then ok is false: run it as it is.
//
// A snippet stays a file of its own, with its lines as they are: what it may
// name without importing it is made global, and only one that returns at the
// top is put into a function, whose beginning shares a line with other code.
//
// A text can be made that takes for ever to parse, or ends the process: what
// strangers send is for a Parser.
func Launch(r LaunchRequest) (launched Launched, ok bool, err error) {
	if lang, _ := Lang(r.Kind); lang != TypeScript {
		if r.Export != "" {
			return Launched{}, false, &run.Error{Code: run.CodeUnsupportedOption, Class: errdefs.ErrInvalidArgument, Field: "options.export",
				Message: fmt.Sprintf("%s has no exports that mcpx could call", r.Kind), Hint: "it is for TypeScript and JavaScript"}
		}
		return Launched{}, false, nil
	}
	if !suspicious(r) {
		return Launched{}, false, nil
	}
	p := probe(r)
	if r.Export != "" && p.parsed && !p.openExports && !slices.Contains(p.exports, r.Export) {
		return Launched{}, false, noExport(r.Export, p.exports)
	}
	if !p.wanted(r) {
		return Launched{}, false, nil
	}
	text := r.Text
	if p.returns && !strings.HasSuffix(r.ScriptName, ".cjs") && !strings.HasSuffix(r.ScriptName, ".cts") {
		text = wrap(r.Text)
		if err := wrapped(r, text, p); err != nil {
			return Launched{}, false, err
		}
	}
	if bytes.Contains(text, []byte("import.meta.main")) {
		text = asMain(text)
	}
	files, err := launcher(r, p)
	if err != nil {
		return Launched{}, false, err
	}
	return Launched{Text: text, Files: files, Entry: launchName}, true, nil
}

// launchName is the file that is run in the script's place. It lies beside the
// script, so that interpreters find the same configuration for both.
const launchName = "mcpx-launch.mjs"

func noExport(name string, there []string) error {
	hint := "the script exports nothing"
	if len(there) > 0 {
		hint = "it exports " + strings.Join(there, ", ")
	}
	return &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: "options.export",
		Message: fmt.Sprintf("the script does not export %q", name), Hint: hint}
}

// launcher is the file to run, and what lets the script import "mcpx".
func launcher(r LaunchRequest, p probed) ([]engine.File, error) {
	names := append([]string{}, p.names...)
	options, err := json.Marshal(map[string]any{
		"script": path.Join(engine.JobDir, r.ScriptName), "names": names, "export": r.Export,
		"captureConsole": r.CaptureConsole, "commonJS": p.commonJS,
	})
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("import { launch } from \"./client/launcher.js\";\nawait launch(%s, () => import(%s));\n", options, quoted("./"+escapePath(r.ScriptName)))
	files := []engine.File{{Path: launchName, Mode: 0o444, Data: []byte(text)}, file("launcher.js", launcherRuntime)}
	if !p.imports {
		return files, nil
	}
	if r.Kind == "deno" {
		return append(files, engine.File{Path: "deno.json", Mode: 0o444, Data: []byte("{\"lock\": false, \"imports\": {\"mcpx\": \"./client/mcpx.js\"}}\n")}), nil
	}
	return append(files,
		engine.File{Path: "node_modules/mcpx/package.json", Mode: 0o444, Data: []byte("{\"name\": \"mcpx\", \"type\": \"module\", \"exports\": \"./index.js\"}\n")},
		engine.File{Path: "node_modules/mcpx/index.js", Mode: 0o444, Data: []byte("export * from \"../../client/mcpx.js\";\n")}), nil
}

// escapePath makes a path of a URL of a file's name.
func escapePath(name string) string {
	return strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23", "\\", "%5C").Replace(name)
}

// wrap puts a snippet into a function that is the default export. Imports can't
// be in a function, so it begins after them.
func wrap(text []byte) []byte {
	const begin, end = "export default async () => {", "\n}\n"
	at := afterImports(text)
	if at == 0 && bytes.HasPrefix(text, []byte("#!")) {
		// The line is of no use any more, and gives the function a line of its own.
		_, rest, _ := bytes.Cut(text, []byte("\n"))
		return slices.Concat([]byte(begin+"\n"), rest, []byte(end))
	}
	if at > 0 {
		return slices.Concat(text[:at], []byte(";"+begin), text[at:], []byte(end))
	}
	return slices.Concat([]byte(begin), text, []byte(end))
}

// asMain makes import.meta.main true, as it is without a launcher.
func asMain(text []byte) []byte {
	const set = `Object.defineProperty(import.meta,"main",{value:true});`
	at := 0
	if bytes.HasPrefix(text, []byte("#!")) {
		if at = bytes.IndexByte(text, '\n') + 1; at == 0 {
			return text
		}
	}
	return slices.Concat(text[:at], []byte(set), text[at:])
}
