package supervisor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"mcpx/orchestrator/frame"
)

// oomKills counts the processes that the limit of the cgroup mounted at root
// has killed, or is frame.OOMUnknown.
func oomKills(root string) int {
	if root == "" {
		return frame.OOMUnknown
	}
	for _, name := range []string{"memory.events", "memory/memory.oom_control"} { // v2, v1
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue
		}
		if n, ok := field(string(text), "oom_kill"); ok {
			return n
		}
	}
	return frame.OOMUnknown
}

// field finds the number behind name in lines of a name and a number.
func field(text, name string) (int, bool) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			n, err := strconv.Atoi(rest)
			return n, err == nil && n >= 0
		}
	}
	return 0, false
}

// oomKillsSince is the difference to an earlier count.
func oomKillsSince(root string, before int) int {
	now := oomKills(root)
	if before == frame.OOMUnknown || now < before {
		return frame.OOMUnknown
	}
	return now - before
}
