// Package client makes the clients that lie beside a script in its container:
// they let it call tools, and hand values and files to the run's readers, in
// its own language.
//
// The same names stand in every language: tools.<namespace>.<function>(args),
// emit, result, artifact, input, log, ToolError. What they speak is the HTTP of
// package sidecar; they need nothing that the interpreter does not bring.
//
// A client is a fixed runtime and what is generated from the catalogue: an
// index of names, which the runtime reads, and apart from it declarations, for
// type checkers and people. So a large catalogue does not slow a script's start.
package client

import (
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

// The languages that have a client.
const (
	TypeScript = "typescript"
	Python     = "python"
	Shell      = "sh"
)

// dir is where all files of a client lie, below engine.JobDir.
const dir = "client"

// Lang is the language of the client for a kind of interpreter.
func Lang(kind string) (lang string, ok bool) {
	switch kind {
	case "deno", "bun", "node":
		return TypeScript, true
	case "python3":
		return Python, true
	case "sh", "bash":
		return Shell, true
	}
	return "", false
}

// Env is what a script's environment needs for its client to be found.
// MCPX_CLIENT is the module to import, the directory to put on the path, or the
// file to source.
func Env(lang string) map[string]string {
	at := path.Join(engine.JobDir, dir)
	switch lang {
	case TypeScript:
		return map[string]string{"MCPX_CLIENT": path.Join(at, "mcpx.js")}
	case Python:
		return map[string]string{"MCPX_CLIENT": path.Join(at, "python"), "PYTHONPATH": path.Join(at, "python")}
	case Shell:
		return map[string]string{"MCPX_CLIENT": path.Join(at, "mcpx.sh")}
	}
	return nil
}

// Files is the client for a language as scripts need it to run, with the
// servers of the namespaces ns, or all when there are none. Paths are below
// client/. The answer depends on nothing but the arguments.
func Files(lang string, servers []tool.Server, ns []string) ([]engine.File, error) {
	servers = restrict(servers, ns)
	switch lang {
	case TypeScript:
		return typescript(servers)
	case Python:
		return python(servers)
	case Shell:
		return shell(), nil
	}
	return nil, noClient(lang)
}

// Types are the declarations that belong beside Files, for type checkers and
// editors. They are apart because they are many times as large as the client,
// and no script needs them to run.
func Types(lang string, servers []tool.Server, ns []string) ([]engine.File, error) {
	servers = restrict(servers, ns)
	switch lang {
	case TypeScript:
		return []engine.File{
			file("mcpx.d.ts", []byte(declarations(servers))),
			file("globals.d.ts", []byte(globalDeclarations(servers))),
		}, nil
	case Python:
		return []engine.File{
			file("python/mcpx/__init__.pyi", pythonStubs(servers)),
			file("python/mcpx/py.typed", nil),
		}, nil
	case Shell:
		return nil, nil
	}
	return nil, noClient(lang)
}

func noClient(lang string) error {
	return &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument, Field: "lang",
		Message: fmt.Sprintf("no client for language %q", lang), Hint: fmt.Sprintf("there are clients for %s, %s and %s", TypeScript, Python, Shell)}
}

// restrict keeps the servers that are meant by one of their names, in the
// order of their namespaces.
func restrict(servers []tool.Server, ns []string) []tool.Server {
	kept := slices.DeleteFunc(slices.Clone(servers), func(s tool.Server) bool {
		return len(ns) > 0 && !slices.Contains(ns, s.Namespace) && !slices.Contains(ns, s.Name)
	})
	slices.SortFunc(kept, func(a, b tool.Server) int {
		switch {
		case a.Namespace < b.Namespace:
			return -1
		case a.Namespace > b.Namespace:
			return 1
		}
		return 0
	})
	return kept
}

// file places data below the client's directory, readable by any user.
func file(name string, data []byte) engine.File {
	return engine.File{Path: path.Join(dir, name), Mode: fs.FileMode(0o444), Data: data}
}
