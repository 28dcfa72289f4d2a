package run

// Error says what went wrong, in a form that people, programs and agents can
// act on. It is a member of a Result, an `error` frame's payload, and the
// detail of an HTTP problem.
type Error struct {
	Code     string   `json:"code"`               // stable, snake_case
	Message  string   `json:"message"`            // one sentence
	Field    string   `json:"field,omitempty"`    // request member at fault, as a path ("options.timeout")
	Hint     string   `json:"hint,omitempty"`     // what to do about it
	Searched []string `json:"searched,omitempty"` // places that were looked at
	// Class is one of containerd/errdefs' sentinel errors (errdefs.ErrNotFound …);
	// errors.Is sees it through Unwrap. It is not part of the JSON.
	Class error `json:"-"`
}

// Error makes Error an error: its message, with the hint when there is one.
func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Message
	}
	return e.Message
}

// Unwrap yields the error's class.
func (e *Error) Unwrap() error { return e.Class }

// Codes of an Error. The OpenAPI document lists them with their meaning.
const (
	CodeInvalidBody        = "invalid_body"        // not JSON, unknown field, wrong type
	CodeInvalidRequest     = "invalid_request"     // fields contradict each other
	CodeInvalidOption      = "invalid_option"      // an option's value is malformed
	CodeUnknownInterpreter = "unknown_interpreter" // no policy knows it
	CodeScriptNotFound     = "script_not_found"    // file resolves to nothing
	CodeAmbiguousScript    = "ambiguous_script"    // two files differ in extension only
	CodeInvalidScript      = "invalid_script"      // NUL byte, not UTF-8, too long
	CodeCwdNotFound        = "cwd_not_found"       // working directory does not exist
	CodeCwdNotAllowed      = "cwd_not_allowed"     // leaves its allowed root
	CodeTooLarge           = "too_large"           // over a size limit
	CodeDenied             = "denied"              // a policy refuses
	CodeUnsupportedOption  = "unsupported_option"  // promises safety and can't be kept
	CodeImageNotFound      = "image_not_found"     // image is not on this machine and can't be had
	CodeEngineUnavailable  = "engine_unavailable"  // engine does not answer
	CodeStartFailed        = "start_failed"        // interpreter or working directory is not in the image
	CodeQueueFull          = "queue_full"          // no room; retry later
	CodeShuttingDown       = "shutting_down"       // daemon is going down
	CodeNotFound           = "not_found"           // no such run, artifact or route
	CodeConflict           = "conflict"            // run id is taken by another request
	CodeUnauthorized       = "unauthorized"        // no or wrong token
	CodeForbidden          = "forbidden"           // foreign Origin or Host
	CodeInternal           = "internal"            // our fault

	CodeUnknownServer       = "unknown_server"       // no MCP server of that name is configured
	CodeUnknownTool         = "unknown_tool"         // the server has no such tool
	CodeInvalidArguments    = "invalid_arguments"    // they fail the tool's schema; no call was made
	CodeQuotaExceeded       = "quota_exceeded"       // artifact store's quota is used up
	CodeDiskFull            = "disk_full"            // disk is full
	CodeToolDenied          = "tool_denied"          // a policy or the configuration keeps the tool back
	CodeUpstreamUnavailable = "upstream_unavailable" // the MCP server can't be reached; no call was made
	CodeUpstreamTimeout     = "upstream_timeout"     // the tool did not answer in time
	CodeUpstreamError       = "upstream_error"       // the MCP server answered with a protocol error
	CodeOutcomeUnknown      = "outcome_unknown"      // the server went away under the call
	CodeResponseTooLarge    = "response_too_large"   // the tool's answer is over the limit
	CodeInvalidResponse     = "invalid_response"     // the tool's answer can't be read

	CodeTimedOut    = "timed_out"    // script's wall clock
	CodeOOMKilled   = "oom_killed"   // script's memory
	CodeOutputLimit = "output_limit" // script's output
	CodeCancelled   = "cancelled"    // by the caller or a shutdown
	CodeSignalled   = "signalled"    // script was ended by a signal
	CodeExitStatus  = "exit_status"  // script exited with another code than 0
	CodeLost        = "lost"         // daemon died under the run
)
