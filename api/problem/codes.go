package problem

import (
	"context"
	"mime"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// Codes that only the HTTP surface yields.
const (
	CodeMethodNotAllowed = "method_not_allowed"
	CodeUnsupportedMedia = "unsupported_media_type"
)

// CodeDaemonUnavailable is the client's: nobody answers at the endpoint.
const CodeDaemonUnavailable = "daemon_unavailable"

// Code is one stable code of a problem or of a result's error.
type Code struct {
	Name    string
	Meaning string
	// Class is what an error with this code has, unless it says otherwise.
	Class error
	// HTTP and Exit stand where the class alone would say too little; 0 else.
	HTTP int
	Exit int
	// Once: what was asked for may have been done, so that nobody should be
	// told to try again, whatever the class says.
	Once bool
}

// Codes lists all, those of refused requests first, then those that are found
// in the result of a run that was carried out.
func Codes() []Code {
	return []Code{
		{Name: run.CodeInvalidBody, Class: errdefs.ErrInvalidArgument, Meaning: "the body is not JSON, has an unknown or doubled field, or a value of the wrong type"},
		{Name: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument, Meaning: "fields or parameters contradict each other or are malformed"},
		{Name: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Meaning: "an option's value is malformed"},
		{Name: run.CodeUnknownInterpreter, Class: errdefs.ErrInvalidArgument, Meaning: "no policy knows the interpreter; those known are listed"},
		{Name: run.CodeScriptNotFound, Class: errdefs.ErrNotFound, HTTP: 404, Exit: ExitUsage, Meaning: "file resolves to nothing; the places searched are listed"},
		{Name: run.CodeAmbiguousScript, Class: errdefs.ErrInvalidArgument, HTTP: 400, Exit: ExitUsage, Meaning: "two scripts differ in their extension only"},
		{Name: run.CodeInvalidScript, Class: errdefs.ErrInvalidArgument, Meaning: "the script holds a NUL byte, is not UTF-8, or its first line is too long"},
		{Name: run.CodeCwdNotFound, Class: errdefs.ErrNotFound, HTTP: 404, Exit: ExitUsage, Meaning: "the working directory does not exist"},
		{Name: run.CodeCwdNotAllowed, Class: errdefs.ErrPermissionDenied, Meaning: "the working directory leaves the roots that the policy allows"},
		{Name: run.CodeTooLarge, Class: errdefs.ErrOutOfRange, HTTP: 413, Exit: ExitUsage, Meaning: "over a size limit, which is named"},
		{Name: run.CodeDenied, Class: errdefs.ErrPermissionDenied, Meaning: "a policy refuses"},
		{Name: run.CodeUnsupportedOption, Class: errdefs.ErrInvalidArgument, Meaning: "the option cannot be kept here, so the run is refused and not done without it"},
		{Name: run.CodeImageNotFound, Class: errdefs.ErrNotFound, Meaning: "the image is not on this machine and cannot be had"},
		{Name: run.CodeEngineUnavailable, Class: errdefs.ErrUnavailable, Meaning: "the container engine does not answer"},
		{Name: run.CodeStartFailed, Class: errdefs.ErrFailedPrecondition, Meaning: "the interpreter or the working directory is not in the image"},
		{Name: run.CodeQueueFull, Class: errdefs.ErrResourceExhausted, Meaning: "no room; try again later"},
		{Name: run.CodeShuttingDown, Class: errdefs.ErrUnavailable, Meaning: "the daemon is going down"},
		{Name: run.CodeNotFound, Class: errdefs.ErrNotFound, Meaning: "no such run, artifact or route"},
		{Name: run.CodeConflict, Class: errdefs.ErrConflict, Meaning: "the id is taken by another request"},
		{Name: run.CodeUnauthorized, Class: errdefs.ErrUnauthenticated, Meaning: "no token, or a wrong one"},
		{Name: run.CodeForbidden, Class: errdefs.ErrPermissionDenied, Meaning: "a foreign Origin or Host"},
		{Name: run.CodeInternal, Class: errdefs.ErrInternal, Meaning: "our fault"},
		{Name: CodeMethodNotAllowed, Class: errdefs.ErrInvalidArgument, HTTP: 405, Exit: ExitUsage, Meaning: "the route has other methods; Allow lists them"},
		{Name: CodeUnsupportedMedia, Class: errdefs.ErrInvalidArgument, HTTP: 415, Exit: ExitUsage, Meaning: "the body's Content-Type is not the one that the route takes"},
		// A store that can't take more: trying again does not help, so these are not 429.
		{Name: run.CodeQuotaExceeded, Class: errdefs.ErrResourceExhausted, HTTP: 507, Exit: ExitNoRoom, Meaning: "the artifact store's quota is used up"},
		{Name: run.CodeDiskFull, Class: errdefs.ErrResourceExhausted, HTTP: 507, Exit: ExitNoRoom, Meaning: "the disk is full"},
		{Name: CodeDaemonUnavailable, Class: errdefs.ErrUnavailable, Meaning: "no daemon answers at the endpoint, or its answer broke off"},

		{Name: run.CodeUnknownServer, Class: errdefs.ErrNotFound, HTTP: 404, Exit: ExitUsage, Meaning: "no MCP server of that name is configured"},
		{Name: run.CodeUnknownTool, Class: errdefs.ErrNotFound, HTTP: 404, Exit: ExitUsage, Meaning: "the MCP server has no such tool; near names are suggested"},
		{Name: run.CodeInvalidArguments, Class: errdefs.ErrInvalidArgument, Meaning: "the arguments fail the tool's schema; no call was made"},
		{Name: run.CodeToolDenied, Class: errdefs.ErrPermissionDenied, Meaning: "a policy or the configuration keeps the tool back"},
		{Name: run.CodeUpstreamUnavailable, Class: errdefs.ErrUnavailable, Meaning: "the MCP server cannot be reached or started; no call was made"},
		{Name: run.CodeUpstreamTimeout, Class: context.DeadlineExceeded, Meaning: "the tool did not answer in time; whether it did its work is unknown"},
		{Name: run.CodeUpstreamError, Class: errdefs.ErrUnknown, HTTP: 502, Exit: ExitOurs, Meaning: "the MCP server answered the call with a protocol error"},
		{Name: run.CodeOutcomeUnknown, Class: errdefs.ErrUnavailable, HTTP: 502, Exit: ExitOurs, Once: true, Meaning: "the MCP server went away under the call, which may have been carried out"},
		{Name: run.CodeResponseTooLarge, Class: errdefs.ErrOutOfRange, HTTP: 502, Exit: ExitOurs, Meaning: "the tool did its work and its answer is over the size limit"},
		{Name: run.CodeInvalidResponse, Class: errdefs.ErrDataLoss, HTTP: 502, Exit: ExitOurs, Meaning: "the tool's answer cannot be read; it may have done its work"},

		{Name: run.CodeTimedOut, Class: errdefs.ErrAborted, HTTP: 504, Exit: ExitTimeout, Meaning: "the script ran into its time limit"},
		{Name: run.CodeOOMKilled, Class: errdefs.ErrAborted, Meaning: "the script ran into its memory limit"},
		{Name: run.CodeOutputLimit, Class: errdefs.ErrAborted, Meaning: "the script ran into its output limit"},
		{Name: run.CodeCancelled, Class: errdefs.ErrAborted, HTTP: StatusClientClosedRequest, Exit: ExitCancelled, Meaning: "the run was cancelled"},
		{Name: run.CodeSignalled, Class: errdefs.ErrAborted, Meaning: "a signal ended the script"},
		{Name: run.CodeExitStatus, Class: errdefs.ErrAborted, Meaning: "the script exited with another code than 0"},
		{Name: run.CodeLost, Class: errdefs.ErrInternal, Meaning: "the daemon died under the run"},
	}
}

func code(name string) (Code, bool) {
	for _, c := range Codes() {
		if c.Name == name {
			return c, true
		}
	}
	return Code{}, false
}

func isProblem(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == ContentType
}
