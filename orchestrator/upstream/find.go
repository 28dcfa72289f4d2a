package upstream

import (
	"os"
	"path/filepath"
)

// systemFile is where a machine's configuration lies.
const systemFile = "/etc/mcpx/config.json"

// Find looks for the configuration: in cwd and every directory above it, then
// in the user's directory, then the machine's. The nearest wins, and in one
// directory mcpx's own names win over the one that hosts share. The path is
// empty when there is none; the places looked at are told in either case.
func Find(cwd, userDir string) (path string, searched []string) {
	for _, candidate := range candidates(cwd, userDir) {
		searched = append(searched, candidate)
		// A file that is there and can't be read is the one: Load says why.
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() {
			return candidate, searched
		}
	}
	return "", searched
}

func candidates(cwd, userDir string) []string {
	var out []string
	if filepath.IsAbs(cwd) {
		for dir := filepath.Clean(cwd); ; dir = filepath.Dir(dir) {
			out = append(out, filepath.Join(dir, ".mcpx.json"), filepath.Join(dir, ".mcpx", "config.json"), filepath.Join(dir, ".mcp.json"))
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	if userDir != "" {
		out = append(out, filepath.Join(userDir, "config.json"))
	}
	return append(out, systemFile)
}
