package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// eventLog is the file of one run: an event a line, in the order of seq.
// One process appends; readers in any process read what is whole.
type eventLog struct {
	mu      sync.Mutex
	file    *os.File
	seq     int64
	size    int64         // bytes of whole lines
	visible int64         // bytes that readers of this process may see
	changed chan struct{} // closed, and replaced, when visible grows
	dirty   bool
	ended   bool  // has its end event; nothing may follow
	closed  bool  // nothing more will come
	broken  error // what was written may not be on disk
}

// logPath spreads the files over directories by the last, random, characters.
func logPath(dir, id string) string {
	return filepath.Join(dir, id[len(id)-2:], id+".ndjson")
}

func createLog(dir, id string) (*eventLog, error) {
	file, err := openLog(dir, id, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return nil, fmt.Errorf("event log: %w", err)
	}
	return &eventLog{file: file, changed: make(chan struct{})}, nil
}

func openLog(dir, id string, flag int) (*os.File, error) {
	path := logPath(dir, id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, flag, 0o600)
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

// appendEnd writes the end event, after which nothing else is taken, and puts
// the file on disk; publishEnd shows it.
func (l *eventLog) appendEnd(end *run.End) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.write(run.EventEnd, end)
	l.ended, l.dirty = true, false
	return errors.Join(err, l.file.Sync())
}

// publishEnd shows all that is written and lets readers go.
func (l *eventLog) publishEnd() {
	l.mu.Lock()
	defer l.mu.Unlock()
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
	if l.ended || l.closed {
		return fmt.Errorf("event log has its end: %w", errdefs.ErrFailedPrecondition)
	}
	if l.broken != nil {
		return l.broken
	}
	line, err := json.Marshal(run.Event{Type: kind, Seq: l.seq + 1, TS: now(), Payload: payload})
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

// sync puts what was written on disk, without holding up the writer. After a
// failure the kernel may have dropped what it could not write, so nothing more
// is taken.
func (l *eventLog) sync() error {
	l.mu.Lock()
	file, due := l.file, l.dirty && !l.closed
	l.dirty = false
	l.mu.Unlock()
	if !due {
		return nil
	}
	err := file.Sync()
	if err == nil || errors.Is(err, fs.ErrClosed) {
		return nil // closed meanwhile: the end put it on disk
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = err
	return err
}

func (l *eventLog) length() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// progress is how far readers may read, whether more can come, and what tells
// of it.
func (l *eventLog) progress() (visible int64, closed bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.visible, l.closed, l.changed
}

// close lets go of the file.
func (l *eventLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.file.Close()
}
