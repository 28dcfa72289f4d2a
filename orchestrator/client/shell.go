package client

import (
	_ "embed"

	"mcpx/orchestrator/engine"
)

//go:embed runtime/sh/mcpx.sh
var shellRuntime []byte

// shell is the same for every catalogue: the endpoint knows the identifiers
// too, and a shell that reads a list of names at its start is slower for it.
func shell() []engine.File {
	return []engine.File{file("mcpx.sh", shellRuntime)}
}
