package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
	"github.com/gin-gonic/gin"

	"mcpx/orchestrator/run"
)

// HealthDocument is a good answer to a probe; a bad one is a problem.
type HealthDocument struct {
	OK bool `json:"ok"`
}

// readyTimeout is how long a probe waits for the engine.
const readyTimeout = 5 * time.Second

// health says only that the daemon answers: who restarts it when the engine
// is away makes things worse.
func (s *Server) health(c *gin.Context) error {
	return writeJSON(c, http.StatusOK, HealthDocument{OK: true})
}

func (s *Server) ready(c *gin.Context) error {
	if s.isDraining() {
		return errDraining()
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), readyTimeout)
	defer cancel()
	if err := s.config.Ready(ctx); err != nil {
		return notReady(err)
	}
	return writeJSON(c, http.StatusOK, HealthDocument{OK: true})
}

// notReady is a 503 whatever the reason is.
func notReady(err error) error {
	if known, ok := errors.AsType[*run.Error](err); ok && errdefs.IsUnavailable(err) {
		return known
	}
	return &run.Error{Code: run.CodeEngineUnavailable, Class: errdefs.ErrUnavailable, Message: err.Error()}
}

func (s *Server) getDocument(c *gin.Context) error {
	c.Header("Content-Type", "application/json")
	_, err := c.Writer.Write(s.openapi)
	return err
}
