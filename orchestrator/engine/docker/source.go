package docker

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
)

// checkSources sees that what is to be mounted are directories, and that none
// of them leads to the daemon's socket: who has that has the machine.
func (e *Engine) checkSources(mounts []engine.Mount) error {
	for _, m := range mounts {
		if err := e.checkSource(m.Source); err != nil {
			return fmt.Errorf("mount of %s: %w", m.Source, err)
		}
	}
	return nil
}

func (e *Engine) checkSource(source string) error {
	real, err := link.CheckSource(source)
	if err != nil {
		return err
	}
	socket := strings.TrimPrefix(e.config.Host, "unix://")
	if resolved, err := filepath.EvalSymlinks(socket); err == nil {
		socket = resolved
	}
	if rel, err := filepath.Rel(real, socket); err == nil && filepath.IsLocal(rel) {
		return fmt.Errorf("it holds docker's socket %s: %w", socket, errdefs.ErrPermissionDenied)
	}
	return nil
}
