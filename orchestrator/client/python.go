package client

import (
	_ "embed"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/tool"
)

//go:embed runtime/python/__init__.py
var pythonRuntime []byte

// python is a package: what runs, the names it reads at the first use of
// tools, and declarations for type checkers.
func python(servers []tool.Server) ([]engine.File, error) {
	names, err := index(servers)
	if err != nil {
		return nil, err
	}
	return []engine.File{
		file("python/mcpx/__init__.py", pythonRuntime),
		file("python/mcpx/__init__.pyi", pythonStubs(servers)),
		file("python/mcpx/index.json", names),
		file("python/mcpx/py.typed", nil),
	}, nil
}
