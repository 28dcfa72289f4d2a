package upstream

import (
	"strings"
	"sync"
)

// tailSize is what is kept of a server's stderr.
const tailSize = 16 << 10

// tail keeps the end of what is written to it, and shows it without secrets.
type tail struct {
	redact redactor
	mu     sync.Mutex
	bytes  []byte
	cut    bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes = append(t.bytes, p...)
	// The start of a secret may lie behind the cut, so that much more is kept.
	if keep := tailSize + t.redact.longest(); len(t.bytes) > 2*keep {
		t.bytes = append(t.bytes[:0], t.bytes[len(t.bytes)-keep:]...)
		t.cut = true
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	text, cut := string(t.bytes), t.cut
	t.mu.Unlock()
	text = t.redact.blank(text)
	if cut {
		text = text[min(t.redact.longest(), len(text)):]
	}
	if len(text) > tailSize {
		text = text[len(text)-tailSize:]
	}
	return strings.ToValidUTF8(collapse(text), "\ufffd")
}

// last is the last line that says something.
func (t *tail) last() string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	line := strings.TrimSpace(lines[len(lines)-1])
	if len(line) > maxQuoted {
		line = strings.ToValidUTF8(line[:maxQuoted], "") + "…"
	}
	return line
}

// maxQuoted bounds what of a server's words goes into an error.
const maxQuoted = 500
