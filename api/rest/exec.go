package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/gin-gonic/gin"

	"mcpx/api/problem"
	"mcpx/orchestrator/run"
)

// exec answers POST /v1/exec: Submit, then one of four ways to hear of it.
func (s *Server) exec(c *gin.Context) error {
	var req run.Request
	if err := decode(c, &req); err != nil {
		return err
	}
	if s.isDraining() {
		return errDraining()
	}
	caller := callerOf(c)
	caller.DeclaresFs = declaresShared(req.Options)
	delivery, err := s.deliveryOf(req.Options)
	if err != nil {
		return err
	}
	id, err := s.config.Jobs.Submit(c.Request.Context(), req, caller)
	if err != nil {
		return err
	}
	aboutRun(c, id)
	if req.Options.Task != nil {
		return s.accepted(c, id)
	}
	return s.attend(c, id, s.waiter(req.Options.Output, delivery))
}

// declaresShared: the caller names a directory that it shares with us and
// works in it. Whether it is mounted is still the policy's to say.
func declaresShared(o run.Options) bool {
	if o.Artifacts == nil || !filepath.IsAbs(o.Artifacts.SharedFs) || !filepath.IsAbs(o.Cwd) {
		return false
	}
	inside, err := filepath.Rel(o.Artifacts.SharedFs, o.Cwd)
	return err == nil && inside != ".." && !strings.HasPrefix(inside, "../")
}

// accepted answers for a task, which goes on without its caller.
func (s *Server) accepted(c *gin.Context, id string) error {
	summary, err := s.config.Runs.Get(c.Request.Context(), id)
	if err != nil {
		return err
	}
	c.Header("Location", "/v1/runs/"+id)
	return writeJSON(c, http.StatusAccepted, summary)
}

type waiter func(ctx context.Context, c *gin.Context, id string) error

func (s *Server) waiter(output string, d *delivery) waiter {
	switch output {
	case run.OutputText:
		return s.answerText
	case run.OutputStream:
		return s.answerStream(d)
	}
	return s.answerStructured(d)
}

// attend waits for a run with wait. When that fails, for whatever reason,
// nobody is left to hear of the run, so it is ended.
func (s *Server) attend(c *gin.Context, id string, wait waiter) error {
	ctx := c.Request.Context()
	heard := false
	defer func() {
		if heard {
			return
		}
		if _, err := s.config.Jobs.Cancel(context.WithoutCancel(ctx), id, run.ErrClientGone); err != nil {
			s.config.Log.Warn("run of a caller who went away goes on", "run", id, "error", err)
		}
	}()
	err := wait(ctx, c, id)
	heard = err == nil
	return err
}

func (s *Server) answerStream(d *delivery) waiter {
	return func(ctx context.Context, c *gin.Context, id string) error {
		out := newFrameWriter(c)
		if err := out.begin(); err != nil {
			return err
		}
		to := &delivering{reader: out, delivery: d, ctx: ctx}
		if _, err := followToEnd(ctx, s.watch(id, 0), to); err != nil {
			return err
		}
		return to.bodies()
	}
}

// folding reads for a structured answer.
type folding struct{ run.Fold }

func (f *folding) event(e run.Event) error {
	f.Add(e)
	return nil
}

func (f *folding) ping() error { return nil }

// answerStructured answers with one document. A script that fails is still a
// 200; a run that mcpx could not carry out is a problem.
func (s *Server) answerStructured(d *delivery) waiter {
	return func(ctx context.Context, c *gin.Context, id string) error {
		var f folding
		if _, err := followToEnd(ctx, s.watch(id, 0), &f); err != nil {
			return err
		}
		result := f.Result()
		if notCarriedOut(result.State) {
			s.fail(c, failureOf(result.Error))
			return nil
		}
		if err := d.inlineAll(ctx, &result); err != nil {
			return err
		}
		return writeJSON(c, http.StatusOK, result)
	}
}

func notCarriedOut(state run.State) bool {
	return state == run.Failed || state == run.Lost || state == run.Denied
}

// failureOf is why a run was not carried out.
func failureOf(e *run.Error) error {
	if e == nil {
		return errdefs.ErrInternal
	}
	return e
}

// Names of the trailers that tell a text answer's ending.
const (
	trailerExitCode = "Mcpx-Exit-Code"
	trailerState    = "Mcpx-State"
)

// texting reads for a text answer: stdout's bytes as they come, and what is
// needed to tell the ending.
type texting struct {
	c     *gin.Context
	begun bool
	err   *run.Error
}

func (t *texting) event(e run.Event) error {
	switch p := e.Payload.(type) {
	case *run.OutputFrame:
		if e.Type != run.EventStdout {
			return nil
		}
		t.begin()
		if _, err := t.c.Writer.Write(p.Bytes()); err != nil {
			return err
		}
		return flush(t.c)
	case *run.Error:
		t.err = p
	}
	return nil
}

// ping can't be: every byte of the answer is the script's.
func (t *texting) ping() error { return nil }

func (t *texting) begin() {
	if t.begun {
		return
	}
	t.begun = true
	h := t.c.Writer.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	h.Set("Trailer", trailerExitCode+", "+trailerState)
	t.c.Status(http.StatusOK)
}

// answerText answers with stdout exactly; how the run ended is told by
// trailers, since the status has long been sent by then.
func (s *Server) answerText(ctx context.Context, c *gin.Context, id string) error {
	t := &texting{c: c}
	end, err := followToEnd(ctx, s.watch(id, 0), t)
	if err != nil {
		return err
	}
	if notCarriedOut(end.State) && !t.begun {
		s.fail(c, failureOf(t.err))
		return nil
	}
	t.begin()
	c.Writer.WriteHeaderNow()
	code := problem.ExitCode(run.Result{State: end.State, ExitCode: end.ExitCode, Signal: end.Signal})
	c.Writer.Header().Set(trailerExitCode, strconv.Itoa(code))
	c.Writer.Header().Set(trailerState, string(end.State))
	return nil
}

// writeJSON answers with one document. It leaves <, > and & as they are:
// nothing here is embedded in HTML, and scripts print a lot of them.
func writeJSON(c *gin.Context, status int, v any) error {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	h := c.Writer.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	h.Set("Cache-Control", "no-store")
	c.Status(status)
	_, err := c.Writer.Write(body.Bytes())
	return err
}
