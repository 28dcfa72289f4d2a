package oci_test

import (
	"log/slog"
	"strings"
	"testing"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/sidecar"
	"mcpx/orchestrator/supervisor/inittest"
)

func listen(dir string) (engine.Control, error) {
	return sidecar.Listen(dir, slog.New(slog.DiscardHandler))
}

func initPath(t *testing.T) string { return inittest.Build(t) }

// lifeOf splits what lifeEnv holds.
func lifeOf(text string) (init, dir string) {
	init, dir, _ = strings.Cut(text, "\n")
	return init, dir
}
