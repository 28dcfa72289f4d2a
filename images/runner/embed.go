// Package runner carries what the stock images are built from, so that an
// installed mcpx can build them.
package runner

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed *.sh Dockerfile.* binaries.txt
var files embed.FS

// Script is the program, among the files, that builds images.
const Script = "build.sh"

// Extract writes the files into dir.
func Extract(dir string) error {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return fmt.Errorf("recipes of the images: %w", err)
	}
	for _, entry := range entries {
		data, err := fs.ReadFile(files, entry.Name())
		if err != nil {
			return fmt.Errorf("recipes of the images: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, entry.Name()), data, 0o644); err != nil {
			return fmt.Errorf("recipes of the images: %w", err)
		}
	}
	return nil
}
