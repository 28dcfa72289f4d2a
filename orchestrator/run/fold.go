package run

import (
	"encoding/base64"
	"unicode/utf8"
)

// Caller is who asks for a run, as the surface that took the request knows it.
type Caller struct {
	// Principal owns the run and its artifacts: "local", or a token's name.
	Principal string
	// SharedFs: the caller is a peer of the daemon's own uid on a unix socket,
	// or in its process: it sees the same file system, with the same rights.
	SharedFs bool
	// DeclaresFs: the caller says that it sees its working directory on the
	// daemon's file system. That is enough to mount it where a policy allows,
	// and not to read the daemon's files by path.
	DeclaresFs bool
	// Trace is the caller's W3C traceparent, if any.
	Trace string
}

// Fold composes a Result from a run's events, which are given to Add in order.
// The event log is the only record of a run; every Result is a fold of it.
type Fold struct {
	result         Result
	stdout, stderr []byte
}

// Add takes the next event.
func (f *Fold) Add(e Event) {
	r := &f.result
	switch p := e.Payload.(type) {
	case *StartFrame:
		r.RunID, r.Runtime, r.Interpreter, r.Image, r.Policy = p.RunID, p.Runtime, p.Interpreter, p.Image, p.Policy
	case *OutputFrame:
		if e.Type == EventStdout {
			f.stdout = append(f.stdout, p.Bytes()...)
		} else {
			f.stderr = append(f.stderr, p.Bytes()...)
		}
	case *Log:
		line := *p
		line.TS = e.TS
		r.Logs = append(r.Logs, line)
	case *Emit:
		r.Emits = append(r.Emits, Emit{Value: p.Value, TS: e.TS})
	case *Call:
		r.Calls = append(r.Calls, *p)
	case *Artifact:
		r.Artifacts = append(r.Artifacts, *p)
	case *Skip:
		r.Skipped = append(r.Skipped, *p)
	case *ResultFrame:
		if string(p.Value) != "null" {
			r.Result = p.Value
		}
	case *Error:
		r.Error = p
	case *End:
		f.end(p)
	}
}

func (f *Fold) end(e *End) {
	r := &f.result
	r.RunID, r.State, r.ExitCode, r.Signal = e.RunID, e.State, e.ExitCode, e.Signal
	r.TimedOut, r.OOMKilled, r.Truncated = e.TimedOut, e.OOMKilled, e.Truncated
	r.StdoutBytes, r.StderrBytes, r.DroppedBytes = e.StdoutBytes, e.StderrBytes, e.DroppedBytes
	r.DurationMs, r.Timings = e.DurationMs, e.Timings
}

// Result yields what has been folded so far.
func (f *Fold) Result() Result {
	r := f.result
	r.Stdout, r.StdoutEncoding = encode(f.stdout)
	r.Stderr, r.StderrEncoding = encode(f.stderr)
	r.Emits = orEmpty(r.Emits)
	r.Logs = orEmpty(r.Logs)
	r.Artifacts = orEmpty(r.Artifacts)
	r.Calls = orEmpty(r.Calls)
	return r
}

func encode(b []byte) (text, encoding string) {
	if utf8.Valid(b) {
		return string(b), ""
	}
	return base64.StdEncoding.EncodeToString(b), "base64"
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
