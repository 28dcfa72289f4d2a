package rest

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/gin-gonic/gin"

	"mcpx/api/problem"
	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

// Keys of what the guards note in a request's gin context.
const (
	keyCaller = "mcpx.caller"
	keyRun    = "mcpx.run"
)

// headerRunID names the run that an answer is about.
const headerRunID = "Mcpx-Run-Id"

func callerOf(c *gin.Context) run.Caller {
	caller, _ := c.MustGet(keyCaller).(run.Caller)
	return caller
}

// aboutRun notes the run that the rest of the request is about.
func aboutRun(c *gin.Context, id string) {
	c.Set(keyRun, id)
	c.Header(headerRunID, id)
}

// handle makes a gin handler of a route: who asks, is the query known, then
// the route's own handler, then its error.
func (s *Server) handle(r Route) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := s.enter(c, r); err != nil {
			s.fail(c, err)
			return
		}
		if err := r.handler(c); err != nil {
			s.fail(c, err)
		}
	}
}

func (s *Server) enter(c *gin.Context, r Route) error {
	if !r.Open {
		caller, err := s.config.Gate.Admit(c.Request)
		if err != nil {
			return err
		}
		c.Set(keyCaller, caller)
	}
	return checkQuery(c.Request, r)
}

// checkQuery refuses parameters that the route does not have: a misspelled
// filter would otherwise list everything.
func checkQuery(req *http.Request, r Route) error {
	query, err := parseQuery(req.URL.RawQuery)
	if err != nil {
		return err
	}
	for name, values := range query {
		known := slices.IndexFunc(r.Params, func(p Param) bool { return p.In == inQuery && p.Name == name })
		switch {
		case known < 0:
			return invalidParam(name, "unknown parameter", "known here: "+strings.Join(r.queryNames(), ", "))
		case len(values) > 1 && !r.Params[known].Repeat:
			return invalidParam(name, "given more than once", "")
		}
	}
	return nil
}

// sameSite keeps web pages of other sites out, from every path.
func (s *Server) sameSite(c *gin.Context) {
	c.Header("X-Content-Type-Options", "nosniff")
	c.Header("Cross-Origin-Resource-Policy", "same-origin")
	if err := s.config.Gate.Foreign(c.Request); err != nil {
		s.fail(c, err)
		c.Abort()
	}
}

// recovered answers a panic with a problem; the daemon lives on.
func (s *Server) recovered(c *gin.Context) {
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		if err, ok := value.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(value) // asked for by fail; net/http cuts the connection
		}
		s.config.Log.Error("handler panicked", "method", c.Request.Method, "route", c.FullPath(),
			"run", c.GetString(keyRun), "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
		c.Abort()
		s.answer(c, problem.New(errdefs.ErrInternal))
	}()
	c.Next()
}

// fail answers with err's problem. When the answer has begun, only a broken
// connection can still say that it is not whole.
func (s *Server) fail(c *gin.Context, err error) {
	d := problem.New(err)
	d.RunID = c.GetString(keyRun)
	if d.Status >= http.StatusInternalServerError && d.Code == run.CodeInternal {
		s.config.Log.Error("request failed", "method", c.Request.Method, "route", c.FullPath(), "run", d.RunID, "error", err)
	}
	if full, ok := errors.AsType[*job.FullError](err); ok {
		c.Header("Retry-After", strconv.Itoa(int(math.Ceil(full.RetryAfter.Seconds()))))
	}
	s.answer(c, d)
}

func (s *Server) answer(c *gin.Context, d problem.Document) {
	if c.Writer.Written() || c.Request.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	for _, name := range []string{"Trailer", "Content-Disposition", "Etag", "Last-Modified"} {
		c.Writer.Header().Del(name) // they were about the answer that did not come
	}
	problem.Write(c.Writer, d)
}

func (s *Server) noRoute(c *gin.Context) {
	s.fail(c, &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound,
		Message: fmt.Sprintf("no route %s", c.Request.URL.Path), Hint: "GET /v1/openapi.json lists the routes"})
}

// noMethod runs when gin has set Allow.
func (s *Server) noMethod(c *gin.Context) {
	s.fail(c, &run.Error{Code: problem.CodeMethodNotAllowed, Class: errdefs.ErrInvalidArgument,
		Message: fmt.Sprintf("%s has no method %s", c.Request.URL.Path, c.Request.Method),
		Hint:    "it has " + c.Writer.Header().Get("Allow")})
}
