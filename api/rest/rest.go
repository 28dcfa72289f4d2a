// Package rest is the HTTP surface: it parses, calls one method and writes.
// All routes stand in one table, from which the OpenAPI document is made too.
package rest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"mcpx/api/auth"
	"mcpx/images"
	"mcpx/orchestrator/run"
)

// Config is what a Server serves. All but the last group must be set.
type Config struct {
	Jobs      Jobs
	Runs      Runs
	Artifacts Artifacts
	Images    Images
	Policies  Policies
	Tools     Tools
	MCP       MCP
	// Script finds the program of a request and what chooses its interpreter,
	// as a run of it would.
	Script func(run.Request) (images.Facts, error)
	// Ready tells why no run could be carried out at the moment, nil when one could.
	Ready func(context.Context) error
	Gate  auth.Gate
	Log   *slog.Logger

	// Version is told by the OpenAPI document.
	Version string
	// DrainTimeout is how long Serve waits for requests under way before it
	// cuts them off; 0 means 30 seconds.
	DrainTimeout time.Duration
}

// Server answers requests; safe for concurrent use. Serve may be called once.
type Server struct {
	config  Config
	engine  *gin.Engine
	openapi []byte

	draining chan struct{} // closed when the server takes no more runs
	drain    sync.Once
	active   sync.WaitGroup // handlers under way
}

const defaultDrain = 30 * time.Second

// NewServer builds the routes.
func NewServer(c Config) (*Server, error) {
	if c.DrainTimeout == 0 {
		c.DrainTimeout = defaultDrain
	}
	s := &Server{config: c, draining: make(chan struct{})}
	document, err := s.document()
	if err != nil {
		return nil, fmt.Errorf("openapi document: %w", err)
	}
	s.openapi = document
	s.engine = s.newEngine()
	return s, nil
}

// ServeHTTP answers one request. Requests whose connection was not noted by
// auth.WithPeer count as strangers on TCP.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.active.Add(1)
	defer s.active.Done()
	s.engine.ServeHTTP(w, r)
}

// Engine is the gin engine, for surfaces that share its listeners.
func (s *Server) Engine() *gin.Engine { return s.engine }

func (s *Server) newEngine() *gin.Engine {
	// gin speaks on stdout in its other modes; the mode is the library's only
	// switch for that.
	if gin.Mode() == gin.DebugMode {
		gin.SetMode(gin.ReleaseMode)
	}
	e := gin.New()
	e.HandleMethodNotAllowed = true
	e.RedirectTrailingSlash = false
	e.ForwardedByClientIP = false // nothing here believes X-Forwarded-For
	e.Use(s.recovered, s.timed, s.sameSite)
	for _, r := range s.routes() {
		e.Handle(r.Method, r.Path, s.handle(r))
	}
	e.NoRoute(s.noRoute)
	e.NoMethod(s.noMethod)
	return e
}
