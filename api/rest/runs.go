package rest

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

// RunPage is a page of a listing.
type RunPage struct {
	Runs []run.Summary `json:"runs"`
	Next string        `json:"next,omitempty"`
}

// RunDocument is one run: as in a listing, and its result once it has ended.
type RunDocument struct {
	run.Summary
	Result *run.Result `json:"result,omitempty"`
}

// CancelDocument tells what a request to cancel met.
type CancelDocument struct {
	RunID   string      `json:"runId"`
	Outcome job.Outcome `json:"outcome"`
	State   run.State   `json:"state"`
}

func (s *Server) listRuns(c *gin.Context) error {
	limit, err := limitParam(c)
	if err != nil {
		return err
	}
	states, err := statesParam(c)
	if err != nil {
		return err
	}
	page, next, err := s.config.Runs.List(c.Request.Context(), job.Filter{
		States: states, Session: c.Query("session"), TaskHandle: c.Query("task_handle"), Label: c.Query("label"),
		Limit: limit, After: c.Query("after"), Principal: scope(c),
	})
	if err != nil {
		return err
	}
	if page == nil {
		page = []run.Summary{}
	}
	return writeJSON(c, http.StatusOK, RunPage{Runs: page, Next: next})
}

func (s *Server) getRun(c *gin.Context) error {
	ctx, id := c.Request.Context(), c.Param("id")
	summary, err := s.ownRun(c)
	if err != nil {
		return err
	}
	document := RunDocument{Summary: summary}
	if summary.State.Terminal() {
		result, err := s.config.Runs.Result(ctx, id)
		if err != nil {
			return err
		}
		document.Result = &result
	}
	return writeJSON(c, http.StatusOK, document)
}

func (s *Server) cancelRun(c *gin.Context) error {
	ctx, id := c.Request.Context(), c.Param("id")
	if _, err := s.ownRun(c); err != nil {
		return err
	}
	outcome, err := s.config.Jobs.Cancel(ctx, id, run.ErrCancelled)
	if err != nil {
		return err
	}
	summary, err := s.config.Runs.Get(ctx, id)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, CancelDocument{RunID: id, Outcome: outcome, State: summary.State})
}
