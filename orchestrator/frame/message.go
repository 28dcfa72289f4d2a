package frame

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"
)

// HelloMessage is the first thing that init says.
type HelloMessage struct {
	Protocol string `json:"protocol"`
	Version  string `json:"version"` // of init, for people
	// Endpoint is the address of init's relay to the run's socket, "" when there is none.
	Endpoint string `json:"endpoint,omitempty"`
	// Problems tell what init could not set up although a script can run without it.
	Problems []string `json:"problems,omitempty"`
}

// JobMessage is what init is to do. What a script sees is bytes, not text:
// they are base64 in JSON, so that nothing is replaced and the size has a bound.
type JobMessage struct {
	Argv  [][]byte `json:"argv"`
	Env   [][]byte `json:"env"`
	Cwd   []byte   `json:"cwd"`
	Stdin bool     `json:"stdin"` // Stdin frames will come; otherwise it is empty
	// MaxEntries bounds what Collect reports.
	MaxEntries int `json:"maxEntries"`
}

// StopMessage asks for the script's end: SIGTERM, and SIGKILL after the grace.
type StopMessage struct {
	GraceMs int64 `json:"graceMs"`
}

// Grace is how long the script may take.
func (m StopMessage) Grace() time.Duration { return time.Duration(m.GraceMs) * time.Millisecond }

// OOMUnknown is ExitMessage.OOMKills where init can't see its cgroup.
const OOMUnknown = -1

// ExitMessage is how the script's first process ended.
type ExitMessage struct {
	Code       int    `json:"code"` // -1 when a signal ended it or it could not be started
	Signal     string `json:"signal,omitempty"`
	OOMKills   int    `json:"oomKills"` // processes that the memory limit killed
	StartError string `json:"startError,omitempty"`
	StartKind  string `json:"startKind,omitempty"`
}

// Values of ExitMessage.StartKind.
const (
	StartNotFound      = "not_found"      // no such interpreter
	StartNotExecutable = "not_executable" // it is there and can't be executed
	StartBadCwd        = "bad_cwd"        // working directory can't be entered
	StartTooLarge      = "too_large"      // arguments and environment are more than the kernel takes
	StartOther         = "other"
)

// FileMessage announces a regular file of the outbox.
type FileMessage struct {
	Name []byte `json:"name"` // relative to the outbox, slash-separated
	Mode uint32 `json:"mode"` // permission bits
	Size int64  `json:"size"` // bytes that follow if it is taken
}

// SkipMessage names an entry of the outbox that is not offered.
type SkipMessage struct {
	Name   []byte `json:"name"`
	Reason string `json:"reason"`
}

// ReasonMessage says why a file ends before its size.
type ReasonMessage struct {
	Reason string `json:"reason"`
}

// WriteMessage writes one frame whose payload is message as JSON.
func (w *Writer) WriteMessage(t Type, message any) error {
	payload, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("%s frame: %w", t, err)
	}
	return w.Write(t, payload)
}

// WriteCredit gives n bytes of StdinWindow back.
func (w *Writer) WriteCredit(n int) error {
	return w.Write(Credit, binary.BigEndian.AppendUint32(nil, uint32(n)))
}

// Credit is how many bytes a Credit frame gives back.
func (f Frame) Credit() int { return int(binary.BigEndian.Uint32(f.Payload)) }

// Decode reads the frame's JSON into message. A member that message does not
// have is an error: both sides speak the same version or none.
func (f Frame) Decode(message any) error {
	d := json.NewDecoder(bytes.NewReader(f.Payload))
	d.DisallowUnknownFields()
	if err := d.Decode(message); err != nil {
		return &InvalidError{f.Type, len(f.Payload), err.Error()}
	}
	if d.More() {
		return &InvalidError{f.Type, len(f.Payload), "more than one value"}
	}
	return nil
}
