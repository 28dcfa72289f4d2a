package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// eventLog is the file of one run: an event a line, in the order of seq.
// One process appends; readers in any process read what is whole.
type eventLog struct {
	path string

	mu      sync.Mutex
	file    *os.File
	seq     int64
	size    int64         // bytes of whole lines
	visible int64         // bytes that readers of this process may see
	changed chan struct{} // closed, and replaced, when visible grows
	dirty   bool
	closed  bool
	failed  error // why the log is cut short
}

// logPath spreads the files over directories by the last, random, characters.
func logPath(dir, id string) string {
	return filepath.Join(dir, id[len(id)-2:], id+".ndjson")
}

func createLog(dir, id string) (*eventLog, error) {
	path := logPath(dir, id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("event log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("event log: %w", err)
	}
	return &eventLog{path: path, file: file, changed: make(chan struct{})}, nil
}

// append writes one event and shows it to readers.
func (l *eventLog) append(kind string, payload any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.write(kind, payload); err != nil {
		return err
	}
	l.show()
	return nil
}

// appendEnd writes the end event and puts the file on disk; publishEnd shows it.
func (l *eventLog) appendEnd(end *run.End) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.write(run.EventEnd, end); err != nil {
		return err
	}
	l.dirty = false
	return l.file.Sync()
}

// publishEnd shows all that is written and lets readers go; err tells them that
// the log is cut short.
func (l *eventLog) publishEnd(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = err
	l.closed = true
	l.file.Close() //nolint:errcheck // it has been synced, or has failed
	l.show()
}

func (l *eventLog) show() {
	l.visible = l.size
	close(l.changed)
	l.changed = make(chan struct{})
}

// write appends a line. What could not be written whole is taken back, so that
// the next one begins where a line begins.
func (l *eventLog) write(kind string, payload any) error {
	if l.closed {
		return fmt.Errorf("event log is closed: %w", errdefs.ErrFailedPrecondition)
	}
	line, err := json.Marshal(run.Event{Type: kind, Seq: l.seq + 1, TS: time.Now().UTC(), Payload: payload})
	if err != nil {
		return err
	}
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		_, seekErr := l.file.Seek(l.size, io.SeekStart)
		return errors.Join(err, l.file.Truncate(l.size), seekErr)
	}
	l.seq++
	l.size += int64(len(line)) + 1
	l.dirty = true
	return nil
}

// sync puts what was written on disk, without holding up the writer.
func (l *eventLog) sync() error {
	l.mu.Lock()
	file, due := l.file, l.dirty && !l.closed
	l.dirty = false
	l.mu.Unlock()
	if !due {
		return nil
	}
	if err := file.Sync(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}

func (l *eventLog) length() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// progress is how far readers may read, and what tells of more.
func (l *eventLog) progress() (visible int64, closed bool, failed error, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.visible, l.closed, l.failed, l.changed
}

func (l *eventLog) remove() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return errors.Join(l.file.Close(), os.Remove(l.path))
}

// reopenLog continues the log of a process that died: a torn last line is cut
// off. last is its last event, with Seq 0 for an empty log.
func reopenLog(dir, id string) (log *eventLog, last run.Event, err error) {
	path := logPath(dir, id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, run.Event{}, fmt.Errorf("event log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, run.Event{}, fmt.Errorf("event log: %w", err)
	}
	last, size, err := lastWhole(file)
	if err == nil {
		err = file.Truncate(size)
	}
	if err == nil {
		_, err = file.Seek(size, io.SeekStart)
	}
	if err != nil {
		return nil, run.Event{}, errors.Join(fmt.Errorf("event log %s: %w", path, err), file.Close())
	}
	return &eventLog{path: path, file: file, seq: last.Seq, size: size, visible: size, changed: make(chan struct{})}, last, nil
}

// lastWhole walks the file once: the last event that can be read, and where
// it ends.
func lastWhole(file *os.File) (last run.Event, size int64, err error) {
	lines := newLines(file)
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return last, size, nil
		}
		if err != nil {
			return run.Event{}, 0, err
		}
		var e run.Event
		if json.Unmarshal(line, &e) != nil || e.Seq != last.Seq+1 {
			return last, size, nil
		}
		last = e
		size += int64(len(line)) + 1
	}
}

// lines reads whole lines of any length; an unfinished one at the end is EOF,
// and is read again when it has grown.
type lines struct {
	r     io.Reader
	buf   []byte
	begin int
}

func newLines(r io.Reader) *lines { return &lines{r: r} }

// next yields a line without its end; it is valid until the next call.
func (l *lines) next() ([]byte, error) {
	searched := l.begin
	for {
		if i := bytes.IndexByte(l.buf[searched:], '\n'); i >= 0 {
			line := l.buf[l.begin : searched+i]
			l.begin = searched + i + 1
			return line, nil
		}
		searched = l.fill()
		n, err := l.r.Read(l.buf[len(l.buf):cap(l.buf)])
		l.buf = l.buf[:len(l.buf)+n]
		if n == 0 && err != nil {
			return nil, err
		}
	}
}

// fill makes room to read into and returns where the unsearched part begins.
func (l *lines) fill() int {
	rest := len(l.buf) - l.begin
	if l.begin > 0 {
		copy(l.buf, l.buf[l.begin:])
		l.buf, l.begin = l.buf[:rest], 0
	}
	if cap(l.buf)-rest < 4<<10 {
		grown := make([]byte, rest, max(64<<10, 2*cap(l.buf)))
		copy(grown, l.buf)
		l.buf = grown
	}
	return rest
}
