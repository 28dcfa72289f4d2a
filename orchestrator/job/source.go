package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// source is a log that is being read, up to what its writer has shown.
type source struct {
	file *os.File
	read int64

	// Of a run that is live in this process.
	log     *eventLog
	changed <-chan struct{}

	// Of a run that is not: its row, and whether that has ended.
	row   func(context.Context) (Row, error)
	ended bool
}

// open looks for the run here, and then in the store, which has the last row
// before a run leaves this process's list.
func (m *Manager) open(ctx context.Context, id string) (*source, error) {
	if !validID(id) {
		return nil, notFound(fmt.Sprintf("no run %q", id))
	}
	s := &source{row: func(ctx context.Context) (Row, error) { return m.config.Store.Get(ctx, id) }}
	if l := m.lookup(id); l != nil {
		s.log = l.log
	} else if err := s.look(ctx); err != nil {
		return nil, err
	}
	var err error
	s.file, err = os.Open(logPath(m.config.LogDir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound("the event log of this run is no longer kept")
	}
	if err != nil {
		return nil, fmt.Errorf("event log: %w", err)
	}
	return s, nil
}

func notFound(message string) error {
	return &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound, Message: message}
}

// Read yields what is shown by now; EOF where that ends.
func (s *source) Read(p []byte) (int, error) {
	if s.log != nil {
		visible, _, changed := s.log.progress()
		s.changed = changed
		p = p[:min(int64(len(p)), visible-s.read)]
		if len(p) == 0 {
			return 0, io.EOF
		}
	}
	n, err := s.file.Read(p)
	s.read += int64(n)
	return n, err
}

// wait returns when there may be more to read; more is false when there never
// will be.
func (s *source) wait(ctx context.Context) (more bool, err error) {
	if s.log == nil {
		return s.poll(ctx)
	}
	visible, closed, _ := s.log.progress()
	if visible > s.read || closed {
		return visible > s.read, nil
	}
	select {
	case <-s.changed:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// pollInterval is how often the log of another process is looked at.
const pollInterval = 200 * time.Millisecond

// poll waits for another process's log to grow or to end. A row ends after its
// log, so once it has, one more look at the log sees all of it.
func (s *source) poll(ctx context.Context) (more bool, err error) {
	if s.ended {
		return false, nil
	}
	select {
	case <-time.After(pollInterval):
		return true, s.look(ctx)
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

func (s *source) look(ctx context.Context) error {
	row, err := s.row(ctx)
	if err != nil {
		return err
	}
	s.ended = row.State.Terminal()
	return nil
}
