package upstream

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// unavailable is the error of a server that can't be reached; no call was made.
func (s *server) unavailable(err error) *run.Error {
	e := &run.Error{Code: run.CodeUpstreamUnavailable, Class: errdefs.ErrUnavailable, Field: "server",
		Message: s.says("can't be reached: %s", err)}
	if s.config.Transport == Stdio {
		e.Hint = "its stderr is shown by the server's status"
	}
	return e
}

// says is a sentence about the server, without its secrets.
func (s *server) says(format string, args ...any) string {
	return s.redact.text("MCP server " + s.config.Name + " " + fmt.Sprintf(format, args...))
}

// clip bounds what callers sent and is said back to them.
func clip(text string) string {
	if len(text) <= maxClip {
		return text
	}
	return strings.ToValidUTF8(text[:maxClip], "") + "…"
}

const maxClip = 100

func either(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// maxListed is how many names an error lists.
const maxListed = 10

func list(names []string) string {
	if len(names) > maxListed {
		return strings.Join(names[:maxListed], ", ") + fmt.Sprintf(" and %d more", len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}
