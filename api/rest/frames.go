package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"mcpx/orchestrator/run"
)

// Media types of a stream.
const (
	mediaSSE    = "text/event-stream"
	mediaNDJSON = "application/x-ndjson"
)

// frames answers GET /v1/runs/{id}/frames: the log from after a sequence
// number on, as it grows. The run does not depend on it.
func (s *Server) frames(c *gin.Context) error {
	after, err := resumePoint(c)
	if err != nil {
		return err
	}
	id := c.Param("id")
	if _, err := s.ownRun(c); err != nil {
		return err
	}
	ctx, cancel := s.untilDrain(c.Request.Context())
	defer cancel()
	err = s.stream(ctx, c, id, after)
	if s.isDraining() && c.Request.Context().Err() == nil {
		return nil // readers resume elsewhere or later, by the last id they saw
	}
	return err
}

// stream begins a stream's answer and follows the log.
func (s *Server) stream(ctx context.Context, c *gin.Context, id string, after int64) error {
	out := newFrameWriter(c)
	if err := out.begin(); err != nil {
		return err
	}
	return follow(ctx, s.watch(id, after), out)
}

func (s *Server) watch(id string, after int64) func(context.Context) iter.Seq2[run.Event, error] {
	return func(ctx context.Context) iter.Seq2[run.Event, error] {
		return s.config.Jobs.Watch(ctx, id, after)
	}
}

// resumePoint is the sequence number after which a reader goes on. A browser
// that reconnects repeats the URL, so the header is the newer of the two.
func resumePoint(c *gin.Context) (int64, error) {
	for _, from := range []struct{ name, value string }{
		{"Last-Event-ID", c.GetHeader("Last-Event-ID")},
		{"after", c.Query("after")},
	} {
		if from.value == "" {
			continue
		}
		after, err := strconv.ParseInt(from.value, 10, 64)
		if err != nil || after < 0 {
			return 0, invalidParam(from.name, fmt.Sprintf("%q is not a sequence number", cut(from.value)), "the seq of the last frame seen, or 0")
		}
		return after, nil
	}
	return 0, nil
}

// frameWriter writes a stream in the form that the caller accepts, a flush a frame.
type frameWriter struct {
	c      *gin.Context
	ndjson bool
}

func newFrameWriter(c *gin.Context) *frameWriter {
	return &frameWriter{c, accepts(c.Request, mediaNDJSON)}
}

// accepts reports whether the caller names the media type; a wildcard does not count.
func accepts(r *http.Request, media string) bool {
	for _, value := range r.Header.Values("Accept") {
		for one := range strings.SplitSeq(value, ",") {
			kind, params, err := mime.ParseMediaType(one)
			if err == nil && kind == media && wants(params) {
				return true
			}
		}
	}
	return false
}

// wants: q=0 means "not this" (RFC 9110 12.4.2).
func wants(params map[string]string) bool {
	q, given := params["q"]
	weight, err := strconv.ParseFloat(q, 64)
	return !given || err == nil && weight > 0
}

// begin sends the header, so that the caller knows the run before its first frame.
func (w *frameWriter) begin() error {
	media := mediaSSE
	if w.ndjson {
		media = mediaNDJSON
	}
	h := w.c.Writer.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold frames back
	w.c.Status(http.StatusOK)
	return flush(w.c)
}

func (w *frameWriter) event(e run.Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("frame %d: %w", e.Seq, err)
	}
	if w.ndjson {
		return w.send(string(data) + "\n")
	}
	return w.send(fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", e.Seq, e.Type, data))
}

func (w *frameWriter) ping() error {
	if w.ndjson {
		return w.send(`{"type":"ping"}` + "\n")
	}
	return w.send(": ping\n\n")
}

func (w *frameWriter) send(frame string) error {
	if _, err := w.c.Writer.WriteString(frame); err != nil {
		return err
	}
	return flush(w.c)
}
