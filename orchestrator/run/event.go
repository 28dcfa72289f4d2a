package run

import (
	"encoding/json"
	"fmt"
	"time"
)

// Types of an Event, in the order in which a run yields them. Everything from
// EventLog to EventCall interleaves as it happens.
const (
	EventQueued   = "queued" // only if the run waited
	EventStart    = "start"
	EventHook     = "hook"
	EventLog      = "log"
	EventEmit     = "emit"
	EventStdout   = "stdout"
	EventStderr   = "stderr"
	EventCall     = "call"
	EventArtifact = "artifact"
	EventSkip     = "skip" // an outbox entry that was not taken
	EventResult   = "result"
	EventError    = "error"
	EventEnd      = "end"
	EventChunk    = "artifact.chunk"
	EventChunkEnd = "artifact.end"
)

// Event is one frame of a run's log. In JSON it is one flat object: type, seq
// and ts, then the members of its payload.
type Event struct {
	Type string
	// Seq counts a run's events from 1 without gaps.
	Seq int64
	TS  time.Time
	// Payload fits Type: *QueuedFrame, *StartFrame, *HookFrame, *Log, *Emit,
	// *OutputFrame, *Call, *Artifact, *Skip, *ResultFrame, *Error, *End, *ChunkFrame.
	Payload any
}

// QueuedFrame tells a waiting caller its place; 1 is next.
type QueuedFrame struct {
	Position int `json:"position"`
}

// StartFrame names the run and what it got.
type StartFrame struct {
	RunID       string `json:"runId"`
	Runtime     string `json:"runtime"`
	Interpreter string `json:"interpreter"`
	Image       string `json:"image"`
	Policy      string `json:"policy"`
}

// HookFrame marks where a hook ran; Value is what it replaced, if it did.
type HookFrame struct {
	Phase string          `json:"phase"`
	Value json.RawMessage `json:"value,omitempty"`
}

// OutputFrame is a piece of stdout or stderr: Text when it is UTF-8 (a rune is
// never cut across frames), else Data, base64 in JSON.
type OutputFrame struct {
	Text string `json:"text,omitempty"`
	Data []byte `json:"data,omitempty"`
}

// Bytes yields the piece as the script wrote it.
func (o *OutputFrame) Bytes() []byte {
	if len(o.Data) > 0 {
		return o.Data
	}
	return []byte(o.Text)
}

// ResultFrame carries the script's value; null when it has none.
type ResultFrame struct {
	Value json.RawMessage `json:"value"`
}

// End closes a run's log: how it ended, without its output.
type End struct {
	RunID        string  `json:"runId"`
	State        State   `json:"state"`
	ExitCode     *int    `json:"exitCode"`
	Signal       string  `json:"signal,omitempty"`
	TimedOut     bool    `json:"timedOut"`
	OOMKilled    bool    `json:"oomKilled"`
	Truncated    bool    `json:"truncated"`
	StdoutBytes  int64   `json:"stdoutBytes"`
	StderrBytes  int64   `json:"stderrBytes"`
	DroppedBytes int64   `json:"droppedBytes,omitempty"`
	DurationMs   int64   `json:"durationMs"`
	Timings      Timings `json:"timings"`
}

// ChunkFrame is a piece of an artifact's body, or (without Data) its end.
type ChunkFrame struct {
	ID   string `json:"id"`
	Data []byte `json:"data,omitempty"`
}

type head struct {
	Type string    `json:"type"`
	Seq  int64     `json:"seq"`
	TS   time.Time `json:"ts"`
}

// MarshalJSON writes the flat form.
func (e Event) MarshalJSON() ([]byte, error) {
	out, err := json.Marshal(head{e.Type, e.Seq, e.TS})
	if err != nil || e.Payload == nil {
		return out, err
	}
	body, err := json.Marshal(e.Payload)
	if err != nil {
		return nil, fmt.Errorf("%s frame: %w", e.Type, err)
	}
	if len(body) <= len(`{}`) {
		return out, nil
	}
	return append(append(out[:len(out)-1], ','), body[1:]...), nil
}

// UnmarshalJSON reads the flat form; an unknown type is an error.
func (e *Event) UnmarshalJSON(data []byte) error {
	var h head
	if err := json.Unmarshal(data, &h); err != nil {
		return err
	}
	payload := newPayload(h.Type)
	if payload == nil {
		return fmt.Errorf("unknown frame type %q", h.Type)
	}
	if err := json.Unmarshal(data, payload); err != nil {
		return fmt.Errorf("%s frame: %w", h.Type, err)
	}
	// The frame's own time stands once, in the head.
	switch p := payload.(type) {
	case *Log:
		p.TS = time.Time{}
	case *Emit:
		p.TS = time.Time{}
	}
	*e = Event{Type: h.Type, Seq: h.Seq, TS: h.TS, Payload: payload}
	return nil
}

func newPayload(kind string) any {
	switch kind {
	case EventQueued:
		return &QueuedFrame{}
	case EventStart:
		return &StartFrame{}
	case EventHook:
		return &HookFrame{}
	case EventLog:
		return &Log{}
	case EventEmit:
		return &Emit{}
	case EventStdout, EventStderr:
		return &OutputFrame{}
	case EventCall:
		return &Call{}
	case EventArtifact:
		return &Artifact{}
	case EventSkip:
		return &Skip{}
	case EventResult:
		return &ResultFrame{}
	case EventError:
		return &Error{}
	case EventEnd:
		return &End{}
	case EventChunk, EventChunkEnd:
		return &ChunkFrame{}
	}
	return nil
}
