package upstream

import (
	"time"

	"mcpx/orchestrator/tool"
)

// SaveRecord writes what a server would have listed.
func SaveRecord(dir string, s Server, tools []tool.Tool) error {
	r := &record{Server: s.Name, Namespace: tool.Namespaces([]string{s.Name}, nil)[s.Name], Origin: origin(s.withDefaults())}
	return catalogue{dir}.save(r.updated(tools, time.Now()))
}
