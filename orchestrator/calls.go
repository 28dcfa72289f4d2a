package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/artifacts"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/sidecar"
	"mcpx/orchestrator/tool"
)

// Tools are the MCP servers that scripts may reach (*upstream.Manager).
type Tools interface {
	Servers(context.Context) []tool.Server
	Tool(ctx context.Context, server, name string) (tool.Tool, error)
	Call(context.Context, tool.Call) (tool.Result, error)
	// EndRun lets go of what was kept for one run.
	EndRun(id string)
}

// Auditor keeps a record of every tool call, beside the run's own log.
type Auditor interface {
	RecordCall(context.Context, AuditedCall) error
}

// AuditedCall is one call as it is kept: what was called by whom and how it
// went, never with what.
type AuditedCall struct {
	At            time.Time
	RunID         string
	Principal     string
	Call          run.Call
	RequestBytes  int64
	ResponseBytes int64
}

// sideRun is a run as its script's endpoint sees it.
type sideRun struct{ *attempt }

var _ sidecar.Run = sideRun{}

// Emit records a value that the script handed out.
func (s sideRun) Emit(value json.RawMessage) error {
	return s.emit(run.EventEmit, &run.Emit{Value: value})
}

// Log records a line of the script for its readers.
func (s sideRun) Log(level, message string) error {
	return s.emit(run.EventLog, &run.Log{Level: level, Message: message})
}

// Result keeps the script's value until its end.
func (s sideRun) Result(value json.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = bytes.Clone(value)
	return nil
}

// Tools lists what the run may call.
func (s sideRun) Tools(ctx context.Context) ([]tool.Server, error) { return s.servers(ctx), nil }

// servers are those of the wanted namespaces, with the tools that are granted.
func (a *attempt) servers(ctx context.Context) []tool.Server {
	granted := []tool.Server{}
	if a.config.Tools == nil {
		return granted
	}
	for _, server := range a.config.Tools.Servers(ctx) {
		if !a.wanted(server.Namespace, server.Name) {
			continue
		}
		server.Tools = slices.DeleteFunc(slices.Clone(server.Tools), func(t tool.Tool) bool {
			return a.plan.Grant.Tools.Check(t.Server, t.Name, t.ReadOnly, t.Destructive) != nil
		})
		granted = append(granted, server)
	}
	return granted
}

// wanted tells whether options.ns lets a server in, by either of its names.
func (a *attempt) wanted(names ...string) bool {
	ns := a.plan.Request.Options.Ns
	return len(ns) == 0 || slices.ContainsFunc(names, func(name string) bool { return slices.Contains(ns, name) })
}

// Call has a tool called for the script, if the policy grants it, and records it.
func (s sideRun) Call(ctx context.Context, server, name string, args json.RawMessage) (tool.Result, error) {
	record := AuditedCall{At: time.Now().UTC(), RunID: s.id, Principal: s.plan.Caller.Principal, RequestBytes: int64(len(args)),
		Call: run.Call{Server: server, Tool: name, ArgsHash: hashArguments(s.config.AuditKey, args)}}
	result, err := s.callGranted(ctx, &record.Call, args)
	record.ResponseBytes = int64(len(result.Raw))
	record.Call.DurationMs = time.Since(record.At).Milliseconds()
	record.Call.OK = err == nil && !result.IsError
	record.Call.Error = errorClass(err, result)
	if emitErr := s.emit(run.EventCall, &record.Call); emitErr != nil {
		err = errors.Join(err, emitErr)
	}
	s.audit(context.WithoutCancel(ctx), record)
	return result, err
}

func (s sideRun) callGranted(ctx context.Context, record *run.Call, args json.RawMessage) (tool.Result, error) {
	if s.config.Tools == nil {
		return tool.Result{}, &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound,
			Message: fmt.Sprintf("no MCP server %q: none is configured", record.Server), Hint: "name it in mcpServers of .mcpx.json"}
	}
	t, err := s.config.Tools.Tool(ctx, record.Server, record.Tool)
	if err != nil {
		return tool.Result{}, err
	}
	record.Server, record.Tool, record.DestructiveHint = t.Server, t.Name, t.Destructive
	if !s.wanted(t.Namespace, t.Server) {
		return tool.Result{}, &run.Error{Code: run.CodeDenied, Class: errdefs.ErrPermissionDenied,
			Message: fmt.Sprintf("this run was asked to keep to %v, and %s is none of them", s.plan.Request.Options.Ns, t.Namespace)}
	}
	if err := s.plan.Grant.Tools.Check(t.Server, t.Name, t.ReadOnly, t.Destructive); err != nil {
		return tool.Result{}, err
	}
	return s.config.Tools.Call(ctx, tool.Call{
		Server: t.Server, Tool: t.Name, Arguments: args,
		Run: s.id, Session: s.plan.Request.Options.Session, Principal: s.plan.Caller.Principal,
		Progress: s.progress(t),
	})
}

// progressInterval bounds the events of a server that reports each step.
const progressInterval = 200 * time.Millisecond

// progress tells the run's readers how far a tool says it is.
func (s sideRun) progress(t tool.Tool) func(done, total float64, message string) {
	var mu sync.Mutex
	last := time.Time{}
	return func(done, total float64, message string) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) < progressInterval && (total == 0 || done < total) {
			return
		}
		last = time.Now()
		text := fmt.Sprintf("%s.%s: %g", t.Namespace, t.Function, done)
		if total > 0 {
			text += fmt.Sprintf(" of %g", total)
		}
		if message != "" {
			text += " " + message
		}
		s.emit(run.EventLog, &run.Log{Level: "debug", Code: "tool_progress", Message: text}) //nolint:errcheck // emit has ended the run
	}
}

// errorClass is what went wrong, without its text, which may quote arguments.
func errorClass(err error, result tool.Result) string {
	var known *run.Error
	switch {
	case err == nil && result.IsError:
		return "tool_error"
	case err == nil:
		return ""
	case errors.As(err, &known):
		return known.Code
	case errors.Is(err, context.Canceled):
		return run.CodeCancelled
	}
	return run.CodeInternal
}

func (a *attempt) audit(ctx context.Context, c AuditedCall) {
	if a.config.Audit == nil {
		return
	}
	if err := a.config.Audit.RecordCall(ctx, c); err != nil {
		a.log.Error("tool call is not in the audit", "server", c.Call.Server, "tool", c.Call.Tool, "error", err)
	}
}

// Artifact keeps what the script hands over while it runs.
func (s sideRun) Artifact(ctx context.Context, name, mime string, size int64, body io.Reader) (run.Artifact, error) {
	meta := s.meta()
	meta.Name, meta.MIME, meta.Size = name, mime, size
	w, err := s.config.Artifacts.Create(ctx, meta)
	if err != nil {
		return run.Artifact{}, err
	}
	defer w.Abort()
	if _, err := io.Copy(w, body); err != nil {
		return run.Artifact{}, err
	}
	artifact, err := w.Commit()
	if err != nil {
		return run.Artifact{}, err
	}
	ref := artifact.Ref()
	return ref, s.emit(run.EventArtifact, &ref)
}

func (a *attempt) meta() artifacts.Meta {
	return artifacts.Meta{Run: a.id, Session: a.plan.Request.Options.Session, Principal: a.plan.Caller.Principal}
}

// OpenArtifact opens an artifact of this run; others do not exist for it.
func (s sideRun) OpenArtifact(ctx context.Context, id string) (run.Artifact, *os.File, error) {
	artifact, file, err := s.config.Artifacts.OpenBlob(ctx, id)
	if err != nil {
		return run.Artifact{}, nil, err
	}
	if artifact.Run != s.id {
		file.Close()
		return run.Artifact{}, nil, &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound, Message: fmt.Sprintf("no artifact %q", id)}
	}
	return artifact.Ref(), file, nil
}
