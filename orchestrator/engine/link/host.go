package link

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
)

// CheckInit sees that path is a program that can be mounted as init. "" is
// none, for images that carry their own.
func CheckInit(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("mcpx-init: %w: %w", err, errdefs.ErrNotFound)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("mcpx-init: %s is not an executable file: %w", path, errdefs.ErrInvalidArgument)
	}
	return nil
}

// CheckSource sees that what is to be mounted is a directory, and yields it
// without links. What must not be mounted is for the engine to know.
func CheckSource(source string) (real string, err error) {
	if !filepath.IsAbs(source) {
		return "", fmt.Errorf("not an absolute path: %w", errdefs.ErrInvalidArgument)
	}
	info, err := os.Stat(source)
	if err != nil {
		return "", fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("not a directory: %w", errdefs.ErrInvalidArgument)
	}
	if real, err = filepath.EvalSymlinks(source); err != nil {
		return "", fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	return real, nil
}
