package oci

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
)

// checkSources sees that what is to be mounted are directories, and that none
// of them leads to what makes containers: who has that has the machine.
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
	docker := strings.TrimPrefix(e.config.DockerHost, "unix://")
	for _, power := range []string{docker, "/run/docker.sock", "/run/containerd/containerd.sock", e.config.Dir, "/proc", "/sys"} {
		if holds(real, resolved(power)) {
			return fmt.Errorf("it holds %s: %w", power, errdefs.ErrPermissionDenied)
		}
	}
	for _, inner := range []string{e.config.Dir, "/proc", "/sys", "/dev"} {
		if holds(resolved(inner), real) {
			return fmt.Errorf("it lies in %s: %w", inner, errdefs.ErrPermissionDenied)
		}
	}
	return nil
}

// resolved follows the links on the way to name, which itself need not be there.
func resolved(name string) string {
	dir, err := filepath.EvalSymlinks(filepath.Dir(name))
	if err != nil {
		return name
	}
	return filepath.Join(dir, filepath.Base(name))
}

// holds tells whether name is dir, or lies in it.
func holds(dir, name string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}
