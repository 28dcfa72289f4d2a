package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
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
	if !filepath.IsAbs(source) {
		return fmt.Errorf("not an absolute path: %w", errdefs.ErrInvalidArgument)
	}
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	if !info.IsDir() {
		return fmt.Errorf("not a directory: %w", errdefs.ErrInvalidArgument)
	}
	return e.keepsSocketOut(source)
}

func (e *Engine) keepsSocketOut(source string) error {
	socket := strings.TrimPrefix(e.config.Host, "unix://")
	real, err := filepath.EvalSymlinks(source)
	if err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	if resolved, err := filepath.EvalSymlinks(socket); err == nil {
		socket = resolved
	}
	if rel, err := filepath.Rel(real, socket); err == nil && filepath.IsLocal(rel) {
		return fmt.Errorf("it holds docker's socket %s: %w", socket, errdefs.ErrPermissionDenied)
	}
	return nil
}
