// Package inittest builds mcpx-init for tests.
package inittest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Build yields the path of an mcpx-init built from this tree. It builds once
// in a process, into the user's cache: what is built stays a while, as Go's own does.
func Build(tb testing.TB) string {
	tb.Helper()
	path, err := built()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

var built = sync.OnceValues(build)

func build() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "mcpx-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Another test may be running the one that is there: never write into it.
	fresh, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	path := filepath.Join(fresh, "mcpx-init")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "mcpx/cmd/mcpx-init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build of mcpx-init: %w\n%s", err, out)
	}
	return keep(dir, path)
}

// keep gives the binary a name that is its content's, so that tests of several
// trees don't meet, and forgets those of other days.
func keep(dir, path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	final := filepath.Join(dir, fmt.Sprintf("mcpx-init-%x", sha256.Sum256(content)))
	if err := os.Rename(path, final); err != nil {
		return "", err
	}
	old, err := filepath.Glob(filepath.Join(dir, "mcpx-init*"))
	for _, name := range old {
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > cacheDays*24*time.Hour {
			os.Remove(name) //nolint:errcheck // the next one tries again
		}
	}
	return final, err
}

const cacheDays = 2
