// Package frame is what a container's init and the daemon say to each other,
// and how it looks on their connection: one byte of type, four of length (big
// endian), and the payload. Standard library only, for init is small.
//
//	init   → Hello
//	daemon → Job
//	init   → Started                     or Exit with a start error
//	daemon → Stdin… StdinEOF             at most StdinWindow bytes beyond what Credit gave back
//	init   → Stdout Stderr Credit StdinClosed, as they happen
//	daemon → Stop or Kill                any number of times
//	init   → Exit                        no process of the script is left
//	daemon → Collect
//	init   → Skip, or File; daemon → Take or Leave; init → Data… FileEnd or FileAbort
//	init   → Collected
//
// Whichever side closes the connection ends the container; there is no other farewell.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Protocol is the version of what is described here.
const Protocol = "1"

// Type says what a frame's payload is.
type Type uint8

// The types of a frame.
const (
	Hello       Type = iota + 1 // init: HelloMessage
	Job                         // daemon: JobMessage
	Started                     // init: the script's process exists
	Stdin                       // daemon: bytes
	StdinEOF                    // daemon: no more of them
	Credit                      // init: how many bytes of Stdin the script took, CreditSize bytes big endian
	StdinClosed                 // init: the script reads no more
	Stdout                      // init: bytes
	Stderr                      // init: bytes
	Stop                        // daemon: StopMessage
	Kill                        // daemon: SIGKILL to everything
	Exit                        // init: ExitMessage
	Collect                     // daemon: walk the outbox
	File                        // init: FileMessage
	Take                        // daemon: send that file's bytes
	Leave                       // daemon: do not
	Data                        // init: bytes of the file
	FileEnd                     // init: all of them have been sent
	FileAbort                   // init: ReasonMessage, the rest can't be read
	Skip                        // init: SkipMessage
	Collected                   // init: the walk is over
)

// Limits of a frame.
const (
	MaxData     = 64 << 10  // payload of Stdin, Stdout, Stderr and Data
	MaxControl  = 4 << 20   // payload of messages, which are JSON
	StdinWindow = 256 << 10 // bytes of Stdin that may be under way
	CreditSize  = 4

	headSize = 5
)

// kind is the form of a type's payload.
type kind uint8

const (
	unknown kind = iota
	empty
	data
	message
	credit
)

func (t Type) kind() kind {
	switch t {
	case Stdin, Stdout, Stderr, Data:
		return data
	case Hello, Job, Stop, Exit, File, FileAbort, Skip:
		return message
	case Started, StdinEOF, StdinClosed, Kill, Collect, Take, Leave, FileEnd, Collected:
		return empty
	case Credit:
		return credit
	}
	return unknown
}

// String names the type for error messages.
func (t Type) String() string {
	names := [...]string{
		Hello: "hello", Job: "job", Started: "started", Stdin: "stdin", StdinEOF: "stdin end", Credit: "credit",
		StdinClosed: "stdin closed", Stdout: "stdout", Stderr: "stderr", Stop: "stop", Kill: "kill", Exit: "exit",
		Collect: "collect", File: "file", Take: "take", Leave: "leave", Data: "data", FileEnd: "file end",
		FileAbort: "file abort", Skip: "skip", Collected: "collected",
	}
	if int(t) < len(names) && names[t] != "" {
		return names[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// InvalidError is a frame that no peer who keeps to the protocol sends, or
// that would be one if it were written.
type InvalidError struct {
	Type   Type
	Length int // of the payload
	Reason string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s frame of %d bytes: %s", e.Type, e.Length, e.Reason)
}

// check tells why a frame of length bytes can't be, or nil.
func check(t Type, length int) error {
	bad := ""
	switch k := t.kind(); {
	case k == unknown:
		bad = "the type is unknown"
	case k == empty && length != 0:
		bad = "it has no payload"
	case k == credit && length != CreditSize:
		bad = "its payload has another size"
	case k == data && (length == 0 || length > MaxData):
		bad = fmt.Sprintf("it has 1 to %d", MaxData)
	case k == message && (length == 0 || length > MaxControl):
		bad = fmt.Sprintf("it has 1 to %d", MaxControl)
	}
	if bad == "" {
		return nil
	}
	return &InvalidError{Type: t, Length: length, Reason: bad}
}

// Frame is one frame. Its payload is valid until the next one is read.
type Frame struct {
	Type    Type
	Payload []byte
}

// Reader reads frames; it is for one goroutine.
type Reader struct {
	from io.Reader
	head [headSize]byte
	buf  []byte
}

// NewReader reads frames from r and never more than them.
func NewReader(r io.Reader) *Reader {
	return &Reader{from: r, buf: make([]byte, MaxData)}
}

// Next reads one frame. The error is io.EOF when the peer went between two
// frames, an *InvalidError when it does not keep to the protocol, and
// otherwise that of the connection.
func (r *Reader) Next() (Frame, error) {
	if _, err := io.ReadFull(r.from, r.head[:]); err != nil {
		return Frame{}, err
	}
	t, length := Type(r.head[0]), binary.BigEndian.Uint32(r.head[1:])
	if err := check(t, int(min(length, 1<<30))); err != nil {
		return Frame{}, err
	}
	payload, err := r.payload(int(length))
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return Frame{t, payload}, nil
}

// payload reads n bytes. A large announcement costs memory only as its bytes come.
func (r *Reader) payload(n int) ([]byte, error) {
	if n <= len(r.buf) {
		_, err := io.ReadFull(r.from, r.buf[:n])
		return r.buf[:n], err
	}
	large := make([]byte, 0, len(r.buf))
	for len(large) < n {
		step := min(n-len(large), max(len(large), len(r.buf)))
		have := len(large)
		large = append(large, make([]byte, step)...)
		if _, err := io.ReadFull(r.from, large[have:]); err != nil {
			return nil, err
		}
	}
	return large, nil
}

// Writer writes frames. It is safe for concurrent use: frames never interleave.
type Writer struct {
	mu  sync.Mutex
	to  io.Writer
	buf []byte
}

// NewWriter writes frames to w, each with one Write.
func NewWriter(w io.Writer) *Writer {
	return &Writer{to: w, buf: make([]byte, headSize, headSize+MaxData)}
}

// Write writes one frame.
func (w *Writer) Write(t Type, payload []byte) error {
	if err := check(t, len(payload)); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	buf := w.buf[:headSize]
	buf[0] = byte(t)
	binary.BigEndian.PutUint32(buf[1:], uint32(len(payload)))
	_, err := w.to.Write(append(buf, payload...))
	return err
}
