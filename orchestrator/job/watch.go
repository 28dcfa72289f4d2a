package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// pollInterval is how often the log of another process is looked at.
const pollInterval = 200 * time.Millisecond

// Watch yields the run's events with a seq above after, and goes on as they
// come until the end event. Readers read the file: one that is slow holds up
// nobody. The last pair may be an error: ctx's cause, an unknown run, a log that
// was cut short.
func (m *Manager) Watch(ctx context.Context, id string, after int64) iter.Seq2[run.Event, error] {
	return func(yield func(run.Event, error) bool) {
		if err := m.watch(ctx, id, after, func(e run.Event) bool { return yield(e, nil) }); err != nil {
			yield(run.Event{}, err)
		}
	}
}

func (m *Manager) watch(ctx context.Context, id string, after int64, yield func(run.Event) bool) error {
	source, err := m.open(ctx, id)
	if err != nil {
		return err
	}
	defer source.file.Close()
	in := newLines(source)
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			if err := source.wait(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("event log of run %s: %w", id, err)
		}
		var e run.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("event log of run %s: %w", id, err)
		}
		if e.Seq > after && !yield(e) {
			return nil
		}
		if e.Type == run.EventEnd {
			return nil
		}
	}
}

// source is a log that is being read, up to what its writer has shown.
type source struct {
	file    *os.File
	log     *eventLog // nil: written by another process, or by none
	read    int64
	changed <-chan struct{}
	// For a log of another process: its row, and whether it has ended.
	row   func(context.Context) (Row, error)
	ended bool
}

func (m *Manager) open(ctx context.Context, id string) (*source, error) {
	if !validID(id) {
		return nil, notFound(id)
	}
	s := &source{row: func(ctx context.Context) (Row, error) { return m.config.Store.Get(ctx, id) }}
	m.mu.Lock()
	if l := m.live[id]; l != nil {
		s.log = l.log
	}
	m.mu.Unlock()
	if s.log == nil {
		row, err := s.row(ctx)
		if err != nil {
			return nil, err
		}
		s.ended = row.State.Terminal()
	}
	var err error
	s.file, err = os.Open(logPath(m.config.LogDir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound, Message: "the event log of this run is no longer kept"}
	}
	return s, err
}

func notFound(id string) error {
	return &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound, Message: fmt.Sprintf("no run %q", id)}
}

// Read yields what is shown by now; EOF where that ends.
func (s *source) Read(p []byte) (int, error) {
	if s.log != nil {
		visible, _, _, changed := s.log.progress()
		s.changed = changed
		if room := visible - s.read; int64(len(p)) > room {
			p = p[:room]
		}
		if len(p) == 0 {
			return 0, io.EOF
		}
	}
	n, err := s.file.Read(p)
	s.read += int64(n)
	return n, err
}

// wait returns when there may be more to read, or why there never will be.
func (s *source) wait(ctx context.Context) error {
	if s.log == nil {
		return s.poll(ctx)
	}
	visible, closed, failed, _ := s.log.progress()
	if visible > s.read {
		return nil
	}
	if closed {
		return cutShort(failed)
	}
	select {
	case <-s.changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// poll waits for another process's log to grow or to end.
func (s *source) poll(ctx context.Context) error {
	if s.ended {
		return cutShort(nil)
	}
	select {
	case <-time.After(pollInterval):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	row, err := s.row(ctx)
	if err != nil {
		return err
	}
	s.ended = row.State.Terminal()
	return nil
}

func cutShort(why error) error {
	return errors.Join(fmt.Errorf("the event log ends before the run did: %w", errdefs.ErrDataLoss), why)
}

// Wait follows a run to its end and composes its result.
func (m *Manager) Wait(ctx context.Context, id string) (run.Result, error) {
	var fold run.Fold
	for e, err := range m.Watch(ctx, id, 0) {
		if err != nil {
			return run.Result{}, err
		}
		fold.Add(e)
	}
	return fold.Result(), nil
}

// Result composes the result of a run that has ended; errdefs.ErrFailedPrecondition
// while it has not.
func (m *Manager) Result(ctx context.Context, id string) (run.Result, error) {
	row, err := m.config.Store.Get(ctx, id)
	if err != nil {
		return run.Result{}, err
	}
	if !row.State.Terminal() {
		return run.Result{}, fmt.Errorf("run %s has not ended: %w", id, errdefs.ErrFailedPrecondition)
	}
	return m.Wait(ctx, id)
}
