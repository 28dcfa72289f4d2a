package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/frame"
	"mcpx/orchestrator/frame/upgrade"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

// Run is what the endpoint does on behalf of the script. Its errors may be
// *run.Error; what they say reaches the script.
type Run interface {
	// Emit hands a JSON value to the run's readers.
	Emit(value json.RawMessage) error
	// Log tells the run's readers a line; level is debug, info, warn or error.
	Log(level, message string) error
	// Result sets the run's value; the last one stands.
	Result(value json.RawMessage) error
	// Tools lists the servers and tools that the script may call.
	Tools(context.Context) ([]tool.Server, error)
	// Call has a tool called. Names are the server's own, or the identifiers.
	Call(ctx context.Context, server, name string, args json.RawMessage) (tool.Result, error)
	// Artifact keeps body; size is -1 when it is not known.
	Artifact(ctx context.Context, name, mime string, size int64, body io.Reader) (run.Artifact, error)
	// OpenArtifact opens an artifact of this run.
	OpenArtifact(ctx context.Context, id string) (run.Artifact, *os.File, error)
}

// Limits of what one script may send over its endpoint, in bytes.
const (
	maxBody   = 1 << 20 // one emit, log or result
	maxTotal  = 8 << 20 // all of them in one run
	entryCost = 256     // what an entry counts at least, so that empty ones are bounded too
	maxArgs   = 4 << 20 // the arguments of one tool call
	maxCalls  = 16      // tool calls at a time; more wait
)

func (s *Sidecar) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+frame.ControlPath, s.serveControl)
	for pattern, serve := range map[string]func(Run, http.ResponseWriter, *http.Request) error{
		"POST /v1/emit":                 s.serveEmit,
		"POST /v1/log":                  s.serveLog,
		"POST /v1/result":               s.serveResult,
		"GET /v1/tools":                 s.serveTools,
		"POST /v1/call/{server}/{tool}": s.serveCall,
		"POST /v1/artifacts":            s.serveUpload,
		"GET /v1/artifacts/{id}":        s.serveDownload,
	} {
		mux.HandleFunc(pattern, s.handler(serve))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound, Message: r.Method + " " + r.URL.Path + " is not served here"})
	})
	return mux
}

// handler serves while a script runs, and writes errors as problems.
func (s *Sidecar) handler(serve func(Run, http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b := s.enter()
		if b == nil {
			refuse(w, &run.Error{Code: codeNotRunning, Class: errdefs.ErrUnavailable, Message: "no script runs here"})
			return
		}
		defer b.work.Done()
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(b.ctx, func() { cancel(context.Cause(b.ctx)) })()
		if err := serve(b.run, w, r.WithContext(ctx)); err != nil {
			refuse(w, err)
		}
	}
}

// enter counts a request in, so that the run waits for it.
func (s *Sidecar) enter() *binding {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound != nil {
		s.bound.work.Add(1)
	}
	return s.bound
}

// serveControl hands the first caller's connection to the engine. That caller
// is init, for it connects before any byte of the script runs.
func (s *Sidecar) serveControl(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	taken := s.taken
	s.taken = true
	s.mu.Unlock()
	if taken {
		refuse(w, &run.Error{Code: run.CodeConflict, Class: errdefs.ErrConflict, Message: "init is connected"})
		return
	}
	conn, err := upgrade.Accept(w, r)
	if err != nil {
		s.log.Warn("init's connection was not upgraded", "error", err)
		return
	}
	s.control <- conn
}

func (s *Sidecar) serveEmit(current Run, w http.ResponseWriter, r *http.Request) error {
	return s.entry(w, r, current.Emit)
}

func (s *Sidecar) serveResult(current Run, w http.ResponseWriter, r *http.Request) error {
	return s.entry(w, r, current.Result)
}

func (s *Sidecar) serveLog(current Run, w http.ResponseWriter, r *http.Request) error {
	return s.entry(w, r, func(body json.RawMessage) error {
		var line struct {
			Level   string `json:"level"`
			Message string `json:"message"`
		}
		if err := json.Unmarshal(body, &line); err != nil {
			return invalid(`the body is {"level": string, "message": string}`)
		}
		switch line.Level {
		case "":
			line.Level = "info"
		case "debug", "info", "warn", "error":
		default:
			return invalid("level is one of debug, info, warn, error")
		}
		return current.Log(line.Level, line.Message)
	})
}

// entry takes one JSON value off the run's budget and does something with it.
func (s *Sidecar) entry(w http.ResponseWriter, r *http.Request, do func(json.RawMessage) error) error {
	body, err := readJSON(w, r, maxBody)
	if err != nil {
		return err
	}
	if err := s.charge(len(body)); err != nil {
		return err
	}
	if err := do(body); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// charge takes an entry's size off the run's budget.
func (s *Sidecar) charge(size int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budget -= max(int64(size), entryCost)
	if s.budget < 0 {
		return &run.Error{Code: run.CodeTooLarge, Class: errdefs.ErrResourceExhausted,
			Message: fmt.Sprintf("emits, logs and results of one run have at most %d bytes together", maxTotal)}
	}
	return nil
}

func (s *Sidecar) serveTools(current Run, w http.ResponseWriter, r *http.Request) error {
	servers, err := current.Tools(r.Context())
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]any{"servers": servers})
}

// serveCall waits for one of the run's places, so that a script cannot flood
// the servers.
func (s *Sidecar) serveCall(current Run, w http.ResponseWriter, r *http.Request) error {
	args, err := readJSON(w, r, maxArgs)
	if err != nil {
		return err
	}
	select {
	case s.calls <- struct{}{}:
		defer func() { <-s.calls }()
	case <-r.Context().Done():
		return context.Cause(r.Context())
	}
	result, err := current.Call(r.Context(), r.PathValue("server"), r.PathValue("tool"), args)
	if err != nil {
		return err
	}
	return answerCall(w, result)
}

// answerCall writes a tool's result: the value that it comes to, or its error.
func answerCall(w http.ResponseWriter, result tool.Result) error {
	if result.IsError {
		return answer(w, http.StatusOK, map[string]any{"isError": true, "text": tool.Text(result.Raw), "raw": result.Raw})
	}
	value, err := tool.Unwrap(result.Raw)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]any{"value": value, "raw": result.Raw})
}

func (s *Sidecar) serveUpload(current Run, w http.ResponseWriter, r *http.Request) error {
	ref, err := current.Artifact(r.Context(), r.URL.Query().Get("name"), r.Header.Get("Content-Type"), r.ContentLength, r.Body)
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, ref)
}

func (s *Sidecar) serveDownload(current Run, w http.ResponseWriter, r *http.Request) error {
	ref, file, err := current.OpenArtifact(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	defer file.Close()
	w.Header().Set("Content-Type", ref.MIME)
	w.Header().Set("ETag", `"`+ref.SHA256+`"`)
	info, err := file.Stat()
	if err != nil {
		return err
	}
	http.ServeContent(w, r, ref.Name, info.ModTime(), file)
	return nil
}

// readJSON reads a body that is one JSON value; an empty one is null.
func readJSON(w http.ResponseWriter, r *http.Request, limit int64) (json.RawMessage, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return nil, &run.Error{Code: run.CodeTooLarge, Class: errdefs.ErrOutOfRange, Message: fmt.Sprintf("a body here has at most %d bytes", limit)}
	}
	if err != nil {
		return nil, invalid("the body did not come whole: " + err.Error())
	}
	if !json.Valid(body) {
		return nil, invalid("the body is not JSON")
	}
	return body, nil
}

func invalid(message string) error {
	return &run.Error{Code: run.CodeInvalidBody, Class: errdefs.ErrInvalidArgument, Message: message}
}

// codeNotRunning is the answer before a script starts and after it ended.
const codeNotRunning = "not_running"
