// Package problem says what an error means on each surface: an HTTP status, an
// MCP result, an exit code. There is one table, so that the three agree.
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// Exit codes of the command line beside the script's own.
const (
	ExitUsage     = 2   // the request is wrong
	ExitNoRoom    = 75  // EX_TEMPFAIL: try again later
	ExitTimeout   = 124 // as timeout(1)
	ExitOurs      = 125 // mcpx could not do its part
	ExitDenied    = 126 // a policy refuses
	ExitCancelled = 130 // 128+SIGINT
)

// StatusClientClosedRequest answers a caller who went away, for the log's
// sake. 408 would be wrong: it invites clients to send the request again.
const StatusClientClosedRequest = 499

// Row is what one class of errors means.
type Row struct {
	Class error
	HTTP  int
	Exit  int
	// MCP is the code of the isError result.
	MCP   string
	Title string
	// Retry: the same request may succeed later.
	Retry bool
}

// Rows is the table, one line a class. What has no class is our fault.
func Rows() []Row {
	return []Row{
		{Class: errdefs.ErrInvalidArgument, HTTP: 400, Exit: ExitUsage, MCP: "invalid_argument", Title: "The request is wrong"},
		{Class: errdefs.ErrUnauthenticated, HTTP: 401, Exit: ExitOurs, MCP: "unauthenticated", Title: "A valid token is needed"},
		{Class: errdefs.ErrPermissionDenied, HTTP: 403, Exit: ExitDenied, MCP: "permission_denied", Title: "Not allowed"},
		{Class: errdefs.ErrNotFound, HTTP: 404, Exit: ExitOurs, MCP: "not_found", Title: "Not found"},
		{Class: errdefs.ErrAlreadyExists, HTTP: 409, Exit: ExitOurs, MCP: "already_exists", Title: "It exists already"},
		{Class: errdefs.ErrConflict, HTTP: 409, Exit: ExitOurs, MCP: "conflict", Title: "In conflict with what is there"},
		{Class: errdefs.ErrAborted, HTTP: 409, Exit: ExitOurs, MCP: "aborted", Title: "Given up because of another request"},
		{Class: errdefs.ErrFailedPrecondition, HTTP: 422, Exit: ExitOurs, MCP: "failed_precondition", Title: "Something that it needs is missing"},
		{Class: errdefs.ErrOutOfRange, HTTP: 416, Exit: ExitUsage, MCP: "out_of_range", Title: "Out of range"},
		{Class: errdefs.ErrResourceExhausted, HTTP: 429, Exit: ExitNoRoom, MCP: "resource_exhausted", Title: "No room at the moment", Retry: true},
		{Class: errdefs.ErrNotModified, HTTP: 304, Exit: 0, MCP: "not_modified", Title: "Not modified"},
		{Class: errdefs.ErrNotImplemented, HTTP: 501, Exit: ExitOurs, MCP: "not_implemented", Title: "This mcpx cannot do it"},
		{Class: errdefs.ErrUnavailable, HTTP: 503, Exit: ExitOurs, MCP: "unavailable", Title: "Not available at the moment", Retry: true},
		{Class: errdefs.ErrDataLoss, HTTP: 500, Exit: ExitOurs, MCP: "data_loss", Title: "Data is damaged"},
		{Class: context.Canceled, HTTP: StatusClientClosedRequest, Exit: ExitCancelled, MCP: "cancelled", Title: "Cancelled"},
		{Class: context.DeadlineExceeded, HTTP: 504, Exit: ExitTimeout, MCP: "deadline_exceeded", Title: "It took too long"},
		{Class: errdefs.ErrInternal, HTTP: 500, Exit: ExitOurs, MCP: "internal", Title: "mcpx could not do its part"},
		{Class: errdefs.ErrUnknown, HTTP: 500, Exit: ExitOurs, MCP: "unknown", Title: "mcpx could not do its part"},
	}
}

// Of looks err up: by its code where the code says more than the class, by its
// class else.
func Of(err error) Row {
	class := err
	if known, ok := errors.AsType[*run.Error](err); ok {
		c, listed := code(known.Code)
		if known.Class == nil && listed {
			// An error that was read from a log has lost its class.
			class = c.Class
		}
		if listed && c.HTTP != 0 {
			row := byClass(class)
			row.HTTP, row.Exit, row.Retry = c.HTTP, c.Exit, row.Retry && !c.Once
			return row
		}
	}
	return byClass(class)
}

func byClass(err error) Row {
	rows := Rows()
	for _, row := range rows {
		if errors.Is(err, row.Class) {
			return row
		}
	}
	return rows[len(rows)-1]
}

// Document is the body of an application/problem+json answer (RFC 9457).
type Document struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Code     string   `json:"code"`
	Field    string   `json:"field,omitempty"`
	Hint     string   `json:"hint,omitempty"`
	Searched []string `json:"searched,omitempty"`
	RunID    string   `json:"runId,omitempty"`
}

// ContentType is the media type of a Document.
const ContentType = "application/problem+json"

// typePrefix makes a code a URI, as RFC 9457 wants the type to be.
const typePrefix = "urn:mcpx:problem:"

// New describes err. What is our fault and not an error meant for callers is
// not spelled out: it may name things of the host, and the log has it.
func New(err error) Document {
	row := Of(err)
	d := Document{Title: row.Title, Status: row.HTTP}
	if known, ok := errors.AsType[*run.Error](err); ok {
		d.Code, d.Detail, d.Field = known.Code, known.Message, known.Field
		d.Hint, d.Searched = known.Hint, known.Searched
	} else {
		d.Code, d.Detail = row.code(), err.Error()
		if row.HTTP == http.StatusInternalServerError {
			d.Detail, d.Hint = "an error inside mcpx", "the daemon's log says more"
		}
	}
	d.Type = typePrefix + d.Code
	return d
}

// code is the code of an error that is not a *run.Error.
func (r Row) code() string {
	switch r.Class {
	case errdefs.ErrInvalidArgument, errdefs.ErrOutOfRange, errdefs.ErrFailedPrecondition:
		return run.CodeInvalidRequest
	case errdefs.ErrUnauthenticated:
		return run.CodeUnauthorized
	case errdefs.ErrPermissionDenied:
		return run.CodeForbidden
	case errdefs.ErrNotFound:
		return run.CodeNotFound
	case errdefs.ErrAlreadyExists, errdefs.ErrConflict, errdefs.ErrAborted:
		return run.CodeConflict
	case errdefs.ErrResourceExhausted:
		return run.CodeQueueFull
	case errdefs.ErrUnavailable:
		return run.CodeEngineUnavailable
	case errdefs.ErrNotImplemented:
		return run.CodeUnsupportedOption
	case context.Canceled:
		return run.CodeCancelled
	case context.DeadlineExceeded:
		return run.CodeTimedOut
	}
	return run.CodeInternal
}

// retryAfter is told to those who may try again, in seconds. Places come free
// within a run's length, which is short.
const retryAfter = 1

// Write answers with d. It must be the first write to w.
func Write(w http.ResponseWriter, d Document) {
	body, err := json.Marshal(d)
	if err != nil { // strings and an int: cannot be
		http.Error(w, d.Detail, d.Status)
		return
	}
	h := w.Header()
	h.Set("Content-Type", ContentType)
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	h.Set("Cache-Control", "no-store")
	switch d.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if h.Get("Retry-After") == "" {
			h.Set("Retry-After", strconv.Itoa(retryAfter))
		}
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="mcpx"`)
	}
	w.WriteHeader(d.Status)
	w.Write(append(body, '\n')) //nolint:errcheck // the caller is gone, nobody to tell
}

// Parse is New's reverse, for clients: the error that an answer carries. A body
// that is no problem document (a proxy's page) still yields an error with the
// class of its status.
func Parse(status int, contentType string, body []byte) *run.Error {
	var d Document
	if !isProblem(contentType) || json.Unmarshal(body, &d) != nil || d.Code == "" {
		row := byStatus(status)
		return &run.Error{Code: row.code(), Class: row.Class,
			Message: "the other side answered " + strconv.Itoa(status) + " " + http.StatusText(status)}
	}
	e := &run.Error{Code: d.Code, Message: d.Detail, Field: d.Field, Hint: d.Hint, Searched: d.Searched}
	if c, ok := code(d.Code); ok {
		e.Class = c.Class
	} else {
		e.Class = byStatus(status).Class
	}
	return e
}

func byStatus(status int) Row {
	for _, row := range Rows() {
		if row.HTTP == status {
			return row
		}
	}
	if status == http.StatusBadGateway {
		return byClass(errdefs.ErrUnavailable) // without one of our codes it is a proxy's
	}
	for _, c := range Codes() {
		if c.HTTP == status {
			return byClass(c.Class)
		}
	}
	switch {
	case status >= 500:
		return byClass(errdefs.ErrUnavailable)
	case status >= 400:
		return byClass(errdefs.ErrInvalidArgument)
	}
	return byClass(errdefs.ErrUnknown)
}
