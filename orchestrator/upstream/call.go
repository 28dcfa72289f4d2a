package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

// Call makes one call. The arguments are checked before anything is started or
// sent. A call that may have been carried out is never made again: when the
// server goes away under it, the error says that the outcome is unknown.
func (m *Manager) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	s, err := m.known(call.Server)
	if err != nil {
		return tool.Result{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.config.CallTimeout, errCallTimeout)
	defer cancel()
	t, err := s.tool(ctx, call.Tool)
	if err != nil {
		return tool.Result{}, err
	}
	checked, err := s.check(t, call.Arguments)
	if err != nil && s.old() {
		// The schema may be that of an older server, which must not refuse what
		// the present one takes.
		s.ask(ctx)
		if t, err = s.tool(ctx, call.Tool); err == nil {
			checked, err = s.check(t, call.Arguments)
		}
	}
	if err != nil {
		return tool.Result{}, err
	}
	call.Arguments = checked
	result, err := s.call(ctx, t, call)
	if errors.Is(err, errNotCarriedOut) {
		// Nothing was sent, or the server said that it does not know our session:
		// the only cases in which a call is made again.
		result, err = s.call(ctx, t, call)
	}
	return result, err
}

var (
	errCallTimeout = errors.New("the call took too long")
	errSessionGone = errors.New("the server has forgotten the session")
	// errNotCarriedOut is certain.
	errNotCarriedOut = errors.New("the call was not carried out")
)

// check makes nothing {}, and refuses what the tool's schema does not take.
func (s *server) check(t tool.Tool, arguments json.RawMessage) (json.RawMessage, error) {
	if len(bytes.TrimSpace(arguments)) == 0 {
		arguments = json.RawMessage("{}")
	}
	checker := s.arguments(t)
	if checker == nil {
		return arguments, nil
	}
	err := checker.Check(arguments)
	if err == nil {
		return arguments, nil
	}
	e := &run.Error{Code: run.CodeInvalidArguments, Class: errdefs.ErrInvalidArgument, Field: "arguments",
		Message: t.Server + "." + t.Name + ": " + err.Error()}
	if m, ok := errors.AsType[*tool.Mismatch](err); ok {
		e.Field = m.Field
	}
	var hints []string
	if example := checker.Example(); example != nil && len(example) <= maxQuoted {
		hints = append(hints, "the least correct arguments are "+string(example))
	}
	if change := s.history(t.Name); change != "" {
		hints = append(hints, change)
	}
	e.Hint = strings.Join(hints, "; ")
	return nil, e
}

// Holders of instances, by the server's scope.
func runKey(id string) string { return "run\x00" + id }
func sessionKey(principal, session string) string {
	return "session\x00" + principal + "\x00" + session
}

// key says for whom the instance of a call is. Without a session it is the
// run's, without a run the call's own.
func (s *server) key(call tool.Call) string {
	switch {
	case s.config.Scope == ScopeGlobal:
		return ""
	case s.config.Scope == ScopeSession && call.Session != "":
		return sessionKey(call.Principal, call.Session)
	case s.config.Scope != ScopeCall && call.Run != "":
		return runKey(call.Run)
	}
	return singleKey
}

// singleKey marks instances for one call. Such an instance leaves after it.
const singleKey = "call"

func (s *server) call(ctx context.Context, t tool.Tool, call tool.Call) (tool.Result, error) {
	i, err := s.pool.acquire(ctx, s.key(call))
	if err != nil {
		if stopped := s.stopped(ctx, t, false); stopped != nil {
			return tool.Result{}, stopped
		}
		return tool.Result{}, s.unavailable(err)
	}
	defer s.pool.release(i)
	if t, call.Arguments, err = s.again(ctx, t, call.Arguments); err != nil {
		return tool.Result{}, err
	}
	state, err := i.link.callTool(ctx, t.Name, call.Arguments, call.Progress)
	result, err := s.outcome(ctx, i, t, state, err)
	if err == nil {
		s.pool.worked()
	}
	return result, err
}

// again checks a call whose tool changed while the server was started.
func (s *server) again(ctx context.Context, before tool.Tool, arguments json.RawMessage) (tool.Tool, json.RawMessage, error) {
	now, err := s.tool(ctx, before.Name)
	if err != nil || bytes.Equal(now.InputSchema, before.InputSchema) {
		return now, arguments, err
	}
	arguments, err = s.check(now, arguments)
	return now, arguments, err
}

// outcome tells the ways apart in which a call can end.
func (s *server) outcome(ctx context.Context, i *instance, t tool.Tool, state flightState, err error) (tool.Result, error) {
	name := t.Server + "." + t.Name
	switch {
	case state.tooLarge:
		return tool.Result{}, &run.Error{Code: run.CodeResponseTooLarge, Class: errdefs.ErrOutOfRange,
			Message: fmt.Sprintf("%s answered with more than %d bytes; the tool did its work", name, s.manager.config.MaxResponse),
			Hint:    "ask for less, or for a file or a link"}
	case state.broken != "" || state.raw != nil && !utf8.Valid(state.raw):
		return tool.Result{}, &run.Error{Code: run.CodeInvalidResponse, Class: errdefs.ErrDataLoss,
			Message: fmt.Sprintf("the answer of %s can't be read: %s; the tool may have done its work", name, orElse(state.broken, "it is not UTF-8"))}
	case state.raw != nil:
		return s.result(ctx, t, state.raw, err)
	}
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok && wire.Code != codeRejected {
		return tool.Result{}, s.refused(ctx, t, wire)
	}
	if stopped := s.stopped(ctx, t, state.sent); stopped != nil {
		if stopped.Code == run.CodeUpstreamTimeout {
			s.probe(ctx, i)
		}
		return tool.Result{}, stopped
	}
	return tool.Result{}, s.lost(i, name, state, err)
}

// codeRejected is the SDK's own, for HTTP answers that carry no message.
const codeRejected = -32005

// result reads what of an answer has to be known here. An answer that the SDK
// could not read, as one with a kind of content it does not know, is a result
// all the same.
func (s *server) result(ctx context.Context, t tool.Tool, raw json.RawMessage, err error) (tool.Result, error) {
	var head struct {
		IsError    bool   `json:"isError"`
		ResultType string `json:"resultType"`
	}
	if decoded := json.Unmarshal(raw, &head); decoded != nil {
		return tool.Result{}, &run.Error{Code: run.CodeInvalidResponse, Class: errdefs.ErrDataLoss,
			Message: fmt.Sprintf("the answer of %s.%s can't be read: it is no tool result; the tool may have done its work", t.Server, t.Name)}
	}
	if head.ResultType != "" && head.ResultType != "complete" {
		return tool.Result{}, &run.Error{Code: run.CodeUpstreamError, Class: errdefs.ErrUnknown,
			Message: s.says("did not complete %s, for it wants input that a script can't give: %v", t.Name, orElse(err, errors.New(head.ResultType)))}
	}
	result := tool.Result{Raw: raw, IsError: head.IsError}
	if head.IsError {
		s.settled(ctx)
		result.Note = s.history(t.Name)
	}
	return result, nil
}

// refused is a protocol error of the server. It may come of a tool that is not
// there any more, which the list tells.
func (s *server) refused(ctx context.Context, t tool.Tool, wire *jsonrpc.Error) error {
	s.settled(ctx)
	s.mu.Lock()
	_, there := pickTool(s.record.Tools, t.Name)
	if !there {
		defer s.mu.Unlock()
		return s.unknownTool(t.Name)
	}
	s.mu.Unlock()
	e := &run.Error{Code: run.CodeUpstreamError, Class: errdefs.ErrUnknown, Hint: s.history(t.Name),
		Message: s.says("answered the call of %s with error %d: %s", t.Name, wire.Code, quoted(wire.Message))}
	if wire.Code == jsonrpc.CodeInvalidParams {
		e.Code, e.Class, e.Field = run.CodeInvalidArguments, errdefs.ErrInvalidArgument, "arguments"
	}
	return e
}

func quoted(text string) string {
	if len(text) > maxQuoted {
		text = strings.ToValidUTF8(text[:maxQuoted], "") + "…"
	}
	return text
}

// stopped is the error of a call that ended because ctx did, else nil.
func (s *server) stopped(ctx context.Context, t tool.Tool, sent bool) *run.Error {
	if ctx.Err() == nil {
		return nil
	}
	name := t.Server + "." + t.Name
	tail := "; no call was made"
	if sent {
		tail = "; the server was told to stop, and whether the tool did its work is unknown"
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errCallTimeout):
		return &run.Error{Code: run.CodeUpstreamTimeout, Class: context.DeadlineExceeded,
			Message: fmt.Sprintf("%s did not answer within %s%s", name, s.config.CallTimeout, tail),
			Hint:    "callTimeout in the server's mcpx block sets the limit"}
	case errors.Is(cause, context.DeadlineExceeded):
		return &run.Error{Code: run.CodeUpstreamTimeout, Class: context.DeadlineExceeded,
			Message: name + " did not answer in the time that the caller has" + tail}
	}
	return &run.Error{Code: run.CodeCancelled, Class: context.Canceled, Message: fmt.Sprintf("the call of %s was cancelled%s", name, tail)}
}

// lost is the error of a call whose connection failed.
func (s *server) lost(i *instance, name string, state flightState, err error) error {
	if errors.Is(err, mcp.ErrSessionMissing) || state.status == http.StatusNotFound {
		s.pool.kill(i, errSessionGone)
		return &run.Error{Code: run.CodeUpstreamUnavailable, Class: errors.Join(errdefs.ErrUnavailable, errNotCarriedOut),
			Message: s.says("has forgotten the session; no call was made")}
	}
	if e := s.byStatus(name, state.status); e != nil {
		return e
	}
	why := quoted(s.story(i, err))
	if !state.sent {
		s.pool.kill(i, errors.New(why))
		return &run.Error{Code: run.CodeUpstreamUnavailable, Class: errors.Join(errdefs.ErrUnavailable, errNotCarriedOut),
			Message: s.says("went away before the call of %s was sent: %s", name, why)}
	}
	return &run.Error{Code: run.CodeOutcomeUnknown, Class: errdefs.ErrUnavailable,
		Message: s.says("went away during the call of %s, so its outcome is unknown: %s", name, why),
		Hint:    "the call is not repeated, for it may have been carried out; see what it did before calling again"}
}

// byStatus is the error of an HTTP answer that no tool gave.
func (s *server) byStatus(name string, status int) error {
	switch {
	case status == 0 || status >= 200 && status < 300:
		return nil
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return &run.Error{Code: run.CodeUpstreamUnavailable, Class: errdefs.ErrUnavailable,
			Message: s.says("refuses mcpx: it answered %d %s", status, http.StatusText(status)), Hint: "see its headers in the configuration"}
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == http.StatusMethodNotAllowed:
		return &run.Error{Code: run.CodeUpstreamUnavailable, Class: errdefs.ErrUnavailable,
			Message: s.says("takes no call: it answered %d %s", status, http.StatusText(status))}
	case status < 500:
		return &run.Error{Code: run.CodeUpstreamError, Class: errdefs.ErrUnknown,
			Message: s.says("answered the call of %s with %d %s", name, status, http.StatusText(status))}
	}
	return &run.Error{Code: run.CodeOutcomeUnknown, Class: errdefs.ErrUnavailable,
		Message: s.says("answered the call of %s with %d %s, so its outcome is unknown", name, status, http.StatusText(status)),
		Hint:    "the call is not repeated, for it may have been carried out"}
}

// story says how an instance ended, by its process where it has one.
func (s *server) story(i *instance, err error) string {
	p := i.link.process
	if p == nil || !p.over(reapTime) {
		return err.Error()
	}
	text := "the process ended (" + p.status() + ")"
	if said := s.tail.last(); said != "" {
		text += ": " + said
	}
	return text
}

// probeTime is how long a server may take for a ping after it let a call run
// into its limit.
const probeTime = 5 * time.Second

// probe ends an instance that answers nothing at all any more, so that the next
// call finds a new one. Any answer will do.
func (s *server) probe(ctx context.Context, i *instance) {
	ctx, leave := s.manager.life.outlive(ctx)
	s.manager.life.work.Go(func() {
		defer leave()
		ctx, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		err := i.link.session.Ping(ctx, nil)
		if err != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			s.pool.kill(i, errors.New("it does not answer"))
		}
	})
}
