// Package run is the vocabulary of one run: what is asked for, what happens,
// and what comes out. Its JSON is the public API of every surface (HTTP, MCP,
// command line), so a field's name here is a promise. Standard library only.
package run

import (
	"encoding/json"
	"time"
)

// Request is the body of POST /v1/exec: one program and how to run it.
// Exactly one of Source and File is set.
type Request struct {
	// Source is the program's text.
	Source string `json:"source,omitempty"`
	// File is a name or a path that the side which resolves the request looks up.
	File string `json:"file,omitempty"`
	// Options may be left out; each field has a default.
	Options Options `json:"options,omitzero"`
}

// Options are the caller's wishes for one run. Every field is optional; a
// policy decides what becomes of each.
type Options struct {
	// Runtime is "auto", an interpreter's name or a command line ("python3 -u").
	Runtime string `json:"runtime,omitempty"`
	// Timeout is the script's wall clock as a Go duration ("2s"), counted from its start.
	Timeout string `json:"timeout,omitempty"`
	// Permissions names a permission profile; refused where it cannot be enforced.
	Permissions string `json:"permissions,omitempty"`
	// Placeholders are values for the @name holes of a launcher template.
	Placeholders map[string]json.RawMessage `json:"placeholders,omitempty"`
	// Session groups a caller's runs, tool calls and artifacts.
	Session string `json:"session,omitempty"`
	// Cwd is the caller's working directory; CwdPolicy says what it means inside.
	Cwd string `json:"cwd,omitempty"`
	// CwdPolicy is one of CwdCaller, CwdScript, CwdConfig, CwdWorkdir.
	CwdPolicy string `json:"cwdPolicy,omitempty"`
	// Env holds the caller's variables; the policy decides which may pass.
	Env map[string]string `json:"env,omitempty"`
	// Stdin is what the script reads; base64 when StdinEncoding is "base64".
	Stdin         string `json:"stdin,omitempty"`
	StdinEncoding string `json:"stdinEncoding,omitempty"`
	// Output is OutputText, OutputStructured or OutputStream.
	Output string `json:"output,omitempty"`
	// Capabilities lists what the caller can receive ("artifacts").
	Capabilities []string `json:"capabilities,omitempty"`
	// Artifacts says how the files a run leaves are handed over.
	Artifacts *ArtifactOptions `json:"artifacts,omitempty"`
	// Task asks for a handle at once instead of the answer.
	Task *TaskOptions `json:"task,omitempty"`
	// Ns restricts the generated client to these tool namespaces.
	Ns []string `json:"ns,omitempty"`
	// Args are the script's arguments.
	Args []string `json:"args,omitempty"`
	// Export names the exported function to call instead of the default one.
	Export string `json:"export,omitempty"`
	// Typecheck is "off", "on" or "strict".
	Typecheck string `json:"typecheck,omitempty"`
	// Launcher is template text that replaces the generated launcher; "none" for no launcher.
	Launcher     string `json:"launcher,omitempty"`
	LauncherName string `json:"launcherName,omitempty"`
	// AllowRepeat lists launcher holes that may be filled more than once.
	AllowRepeat []string `json:"allowRepeat,omitempty"`
	// CaptureConsole mirrors console members into log frames; nil means true.
	CaptureConsole *bool `json:"captureConsole,omitempty"`
	// Phases are source lines run around the program.
	Phases *Phases `json:"phases,omitempty"`
	// Inputs are files for the inbox: name to artifact id or inline text.
	Inputs map[string]string `json:"inputs,omitempty"`
	// Files are siblings of the script: relative path to text or artifact id.
	Files map[string]string `json:"files,omitempty"`
	// Label is shown in listings.
	Label string `json:"label,omitempty"`
	// TaskHandle groups runs of one task; it grants nothing.
	TaskHandle string `json:"task_handle,omitempty"`
}

// ArtifactOptions says how artifacts are delivered.
type ArtifactOptions struct {
	Delivery string `json:"delivery,omitempty"` // reference (default), inline or stream
	MaxBytes int64  `json:"maxBytes,omitempty"` // largest artifact the caller takes inline, in bytes
	SharedFs string `json:"sharedFs,omitempty"` // directory that caller and daemon both see
	Dir      string `json:"dir,omitempty"`      // put the files here for the caller
}

// TaskOptions asks for an asynchronous run whose result is kept for TTL.
type TaskOptions struct {
	TTL int64 `json:"ttl"` // milliseconds
}

// Phases are lists of source lines injected around the program.
type Phases struct {
	Before    []string `json:"before,omitempty"`
	Prefix    []string `json:"prefix,omitempty"`
	OnSuccess []string `json:"onSuccess,omitempty"`
	OnError   []string `json:"onError,omitempty"`
	Suffix    []string `json:"suffix,omitempty"`
}

// Values of Options.Output.
const (
	OutputText       = "text"
	OutputStructured = "structured"
	OutputStream     = "stream"
)

// Values of Options.CwdPolicy.
const (
	CwdCaller  = "caller"
	CwdScript  = "script"
	CwdConfig  = "config"
	CwdWorkdir = "workdir"
)

// State is where a run stands. Terminal states never change.
type State string

// The states of a run, in the order in which they can follow each other.
const (
	Queued   State = "queued"   // waits for a place
	Starting State = "starting" // its container is being prepared
	Running  State = "running"  // the script runs

	Exited      State = "exited"       // the script ended by itself; exitCode says how
	Signalled   State = "signalled"    // a signal that mcpx did not send ended the script
	TimedOut    State = "timed_out"    // the script was ended at its wall-clock limit
	OOMKilled   State = "oom_killed"   // the script was ended by the memory limit
	OutputLimit State = "output_limit" // the script was ended because it wrote too much
	Cancelled   State = "cancelled"    // the caller, or a shutdown, ended it
	Denied      State = "denied"       // a policy refused it; nothing was started
	Failed      State = "failed"       // mcpx could not do its part
	Lost        State = "lost"         // the daemon died while the run was under way
)

// Terminal reports whether a run in state s has ended.
func (s State) Terminal() bool {
	switch s {
	case Queued, Starting, Running, "":
		return false
	}
	return true
}

// Result is what a run came to. It is complete: an empty list means none.
type Result struct {
	RunID string `json:"runId"`
	State State  `json:"state"`
	// Result is the script's returned value, or stdout parsed when the whole of stdout is JSON.
	Result json.RawMessage `json:"result,omitempty"`
	Emits  []Emit          `json:"emits"`
	Logs   []Log           `json:"logs"`
	Stdout string          `json:"stdout"`
	Stderr string          `json:"stderr"`
	// StdoutEncoding and StderrEncoding are "base64" when the bytes are not UTF-8.
	StdoutEncoding string `json:"stdoutEncoding,omitempty"`
	StderrEncoding string `json:"stderrEncoding,omitempty"`
	// StdoutBytes and StderrBytes count what the script wrote, kept or not.
	StdoutBytes int64 `json:"stdoutBytes"`
	StderrBytes int64 `json:"stderrBytes"`
	// DroppedBytes is how much of both was not kept; 0 unless Truncated.
	DroppedBytes int64      `json:"droppedBytes,omitempty"`
	Artifacts    []Artifact `json:"artifacts"`
	// Skipped lists what lay in the outbox and was not taken, with the reason.
	Skipped []Skip `json:"skipped,omitempty"`
	Calls   []Call `json:"calls"`
	// ExitCode is null when the script did not exit by itself.
	ExitCode    *int    `json:"exitCode"`
	Signal      string  `json:"signal,omitempty"` // "SIGKILL"
	TimedOut    bool    `json:"timedOut"`
	OOMKilled   bool    `json:"oomKilled"` // a process of the run was killed for memory, whatever the state
	Truncated   bool    `json:"truncated"`
	DurationMs  int64   `json:"durationMs"` // script's start to its end
	Timings     Timings `json:"timings"`
	Runtime     string  `json:"runtime,omitempty"`     // kind of interpreter ("python3")
	Interpreter string  `json:"interpreter,omitempty"` // command line in the container
	Image       string  `json:"image,omitempty"`
	Policy      string  `json:"policy,omitempty"`
	Error       *Error  `json:"error,omitempty"`
}

// Timings are the moments of a run in milliseconds since it was submitted;
// a phase that was not reached is absent.
type Timings struct {
	Queued      *float64 `json:"queued,omitempty"`      // left the queue
	Prepared    *float64 `json:"prepared,omitempty"`    // container is up, init waits
	Started     *float64 `json:"started,omitempty"`     // the script's process exists
	FirstOutput *float64 `json:"firstOutput,omitempty"` // first byte of stdout or stderr
	Ended       *float64 `json:"ended,omitempty"`       // no process of the script is left
	Collected   *float64 `json:"collected,omitempty"`   // outbox is in the store
	Removed     *float64 `json:"removed,omitempty"`     // container is gone
}

// Emit is a value the script handed out while it ran.
type Emit struct {
	Value json.RawMessage `json:"value"`
	TS    time.Time       `json:"ts,omitzero"`
}

// Log is a line for people: from the script, or from mcpx about the run.
type Log struct {
	Level   string    `json:"level"` // debug, info, warn, error
	Message string    `json:"message"`
	Code    string    `json:"code,omitempty"` // set when mcpx speaks, e.g. "shebang_overrides_runtime"
	TS      time.Time `json:"ts,omitzero"`
}

// Call is one tool call; never its arguments, only their keyed hash.
type Call struct {
	Server          string `json:"server"`
	Tool            string `json:"tool"`
	ArgsHash        string `json:"argsHash"`
	DurationMs      int64  `json:"durationMs"`
	OK              bool   `json:"ok"`
	Error           string `json:"error,omitempty"`
	DestructiveHint *bool  `json:"destructiveHint,omitempty"`
}

// Artifact refers to a file that a run left.
type Artifact struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	MIME   string `json:"mime"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
	URI    string `json:"uri"`
	// Data is the content, when it was asked for inline and within bounds;
	// base64 in JSON. An empty file has empty Data.
	Data *[]byte `json:"data,omitempty"`
}

// Skip names an outbox entry that was not taken, and why.
type Skip struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Summary is a run in a listing.
type Summary struct {
	RunID      string     `json:"runId"`
	State      State      `json:"state"`
	Label      string     `json:"label,omitempty"`
	TaskHandle string     `json:"task_handle,omitempty"`
	Session    string     `json:"session,omitempty"`
	Principal  string     `json:"principal,omitempty"` // whose it is
	Runtime    string     `json:"runtime,omitempty"`
	Image      string     `json:"image,omitempty"`
	Policy     string     `json:"policy,omitempty"`
	ExitCode   *int       `json:"exitCode"`
	Signal     string     `json:"signal,omitempty"`
	CreatedAt  time.Time  `json:"createdAt"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	EndedAt    *time.Time `json:"endedAt,omitempty"`
	DurationMs int64      `json:"durationMs"`
	Error      *Error     `json:"error,omitempty"`
}
