package orchestrator

import (
	"bytes"
	"encoding/json"
	"sync"
	"time"
	"unicode/utf8"

	"mcpx/orchestrator/run"
)

const (
	// frameBytes bounds one output frame.
	frameBytes = 32 << 10
	// frameInterval is the least time between two frames of a busy stream: the
	// first byte after a pause goes out at once, a torrent of single bytes does
	// not become a torrent of frames.
	frameInterval = 5 * time.Millisecond
)

// output turns what a script writes into frames: bounded, in the order of
// writing, never cutting a rune, and without holding back a byte for longer
// than frameInterval (but for the first bytes of an unfinished rune).
type output struct {
	emit  func(kind string, payload any) error
	first func() // called once, at the first byte
	limit func() // called once, when more than limitBytes were written

	keepBytes, limitBytes int64

	mu       sync.Mutex
	stdout   stream
	stderr   stream
	pending  *stream // whose bytes wait for the timer
	last     time.Time
	timer    *time.Timer
	kept     int64
	err      error
	value    bytes.Buffer // stdout while it can still be one JSON value
	notValue bool
}

// stream is one of the two outputs.
type stream struct {
	out     *output
	kind    string
	buf     []byte
	written int64
}

func newOutput(keep, limit int64, emit func(string, any) error, first, limited func()) *output {
	o := &output{emit: emit, first: first, limit: limited, keepBytes: keep, limitBytes: limit}
	o.stdout = stream{out: o, kind: run.EventStdout}
	o.stderr = stream{out: o, kind: run.EventStderr}
	return o
}

// Write takes a piece of the stream. What is over the kept amount is counted
// and dropped, so that the script never blocks on it.
func (s *stream) Write(p []byte) (int, error) {
	o := s.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	o.count(s, len(p))
	if room := o.keepBytes - o.kept; int64(len(p)) > room {
		o.take(s, p[:room])
	} else {
		o.take(s, p)
	}
	return len(p), o.err
}

func (o *output) count(s *stream, n int) {
	before := o.stdout.written + o.stderr.written
	if before == 0 && n > 0 {
		o.first()
	}
	s.written += int64(n)
	if after := before + int64(n); before <= o.limitBytes && after > o.limitBytes {
		o.limit()
	}
}

// take keeps p and sends what is due.
func (o *output) take(s *stream, p []byte) {
	if len(p) == 0 {
		return
	}
	o.kept += int64(len(p))
	if s == &o.stdout {
		o.sniff(p)
	}
	if o.pending != nil && o.pending != s {
		o.flush()
	}
	s.buf = append(s.buf, p...)
	o.pending = s
	wait := frameInterval - time.Since(o.last)
	if wait <= 0 || len(s.buf) >= frameBytes {
		o.flush()
		return
	}
	if o.timer == nil {
		o.timer = time.AfterFunc(wait, o.tick)
	}
}

// sniff keeps stdout for as long as it can be one JSON value.
func (o *output) sniff(p []byte) {
	if o.notValue {
		return
	}
	if o.value.Len() == 0 {
		start := bytes.TrimLeft(p, " \t\r\n")
		if len(start) == 0 {
			return
		}
		if !bytes.ContainsRune([]byte(`{["-0123456789tfn`), rune(start[0])) {
			o.notValue = true
			return
		}
	}
	o.value.Write(p)
}

func (o *output) tick() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flush()
}

// flush sends what is pending, but for an unfinished rune at its end.
func (o *output) flush() {
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
	s := o.pending
	o.pending = nil
	if s == nil {
		return
	}
	whole := len(s.buf) - unfinished(s.buf)
	o.send(s, s.buf[:whole])
	s.buf = append(s.buf[:0], s.buf[whole:]...)
	o.last = time.Now()
}

// send emits p in frames of at most frameBytes.
func (o *output) send(s *stream, p []byte) {
	for len(p) > 0 && o.err == nil {
		piece := p
		if len(piece) > frameBytes {
			piece = piece[:frameBytes]
			piece = piece[:len(piece)-unfinished(piece)]
		}
		o.err = o.emit(s.kind, outputFrame(piece))
		p = p[len(piece):]
	}
}

func outputFrame(p []byte) *run.OutputFrame {
	if utf8.Valid(p) {
		return &run.OutputFrame{Text: string(p)}
	}
	return &run.OutputFrame{Data: bytes.Clone(p)}
}

// unfinished is how many bytes at the end of p begin a rune that goes on.
func unfinished(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if tail := p[len(p)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// close sends all that is left, unfinished runes too. No Write may follow.
func (o *output) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flush()
	for _, s := range []*stream{&o.stdout, &o.stderr} {
		o.send(s, s.buf)
		s.buf = nil
	}
	return o.err
}

// failure is the error that ended the recording, if any.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// dropped is how many bytes were counted but not kept.
func (o *output) dropped() int64 {
	return o.stdout.written + o.stderr.written - o.kept
}

// result is stdout as a JSON value when the whole of it is one, else null.
func (o *output) result() json.RawMessage {
	null := json.RawMessage("null")
	if o.notValue || o.dropped() > 0 {
		return null
	}
	value := bytes.TrimSpace(o.value.Bytes())
	if len(value) == 0 || !json.Valid(value) || !utf8.Valid(value) {
		return null
	}
	return value
}
