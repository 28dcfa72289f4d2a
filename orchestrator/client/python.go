package client

import (
	_ "embed"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/tool"
)

//go:embed runtime/python/__init__.py
var pythonRuntime []byte

// python is a package: what runs, and the names it reads at the first use of tools.
func python(servers []tool.Server) ([]engine.File, error) {
	names, err := index(servers)
	if err != nil {
		return nil, err
	}
	return []engine.File{
		file("python/mcpx/__init__.py", pythonRuntime),
		file("python/mcpx/index.json", names),
	}, nil
}
