package rest

import (
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"github.com/gin-gonic/gin"

	"mcpx/api/auth"
	"mcpx/artifacts"
	"mcpx/orchestrator/run"
)

// scope is whose things a caller sees. The machine's own user, who owns the
// daemon, sees everybody's: "".
func scope(c *gin.Context) string {
	if principal := callerOf(c).Principal; principal != auth.PrincipalLocal {
		return principal
	}
	return ""
}

// ownRun is the run, if the caller may know of it. Another's does not exist.
func (s *Server) ownRun(c *gin.Context) (run.Summary, error) {
	id := c.Param("id")
	summary, err := s.config.Runs.Get(c.Request.Context(), id)
	if err != nil {
		return run.Summary{}, err
	}
	if owner := scope(c); owner != "" && summary.Principal != owner {
		return run.Summary{}, missing("run", id)
	}
	aboutRun(c, id)
	return summary, nil
}

// ownArtifact opens an artifact, if the caller may know of it.
func (s *Server) ownArtifact(c *gin.Context) (artifacts.Artifact, *os.File, error) {
	id := c.Param("id")
	a, file, err := s.config.Artifacts.OpenBlob(c.Request.Context(), id)
	if err != nil {
		return artifacts.Artifact{}, nil, err
	}
	if owner := scope(c); owner != "" && a.Principal != owner {
		file.Close()
		return artifacts.Artifact{}, nil, missing("artifact", id)
	}
	return a, file, nil
}

func missing(what, id string) error {
	return &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound, Message: fmt.Sprintf("no %s %q", what, id)}
}
