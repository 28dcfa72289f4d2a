package link

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/frame"
)

// Limits of an entry's name; init keeps to them.
const (
	maxName  = 4096 // bytes
	maxDepth = 32   // components
)

// Collect has init walk the outbox and gives every entry to sink, as
// engine.Container.Collect promises. It follows a Run that ended with a report.
func (l *Link) Collect(ctx context.Context, sink engine.Outbox) error {
	if l.state != ended {
		return fmt.Errorf("outbox: its init is gone: %w", errdefs.ErrUnavailable)
	}
	release := l.interruptible(ctx)
	err := l.collect(sink)
	if cause := release(); cause != nil {
		err = cause
	}
	if err != nil {
		l.state = broken
		return errors.Join(fmt.Errorf("outbox: %w", err), l.Close())
	}
	return nil
}

func (l *Link) collect(sink engine.Outbox) error {
	if err := l.out.Write(frame.Collect, nil); err != nil {
		return gone(err)
	}
	// One more than init may report is the word that there are more.
	for range l.config.MaxEntries + 1 {
		f, err := l.in.Next()
		if err != nil {
			return gone(err)
		}
		switch f.Type {
		case frame.Collected:
			return nil
		case frame.File:
			err = l.file(f, sink)
		case frame.Skip:
			err = skip(f, sink)
		default:
			err = gone(unexpected(f, "during the walk"))
		}
		if err != nil {
			return err
		}
	}
	return l.over()
}

// over sees the end of a walk that has used its entries.
func (l *Link) over() error {
	f, err := l.in.Next()
	if err == nil && f.Type != frame.Collected {
		err = fmt.Errorf("more than %d entries", l.config.MaxEntries)
	}
	if err != nil {
		return gone(err)
	}
	return nil
}

func skip(f frame.Frame, sink engine.Outbox) error {
	var m frame.SkipMessage
	if err := f.Decode(&m); err != nil {
		return gone(err)
	}
	if err := checkName(string(m.Name)); err != nil {
		return gone(err)
	}
	if m.Reason == "" || len(m.Reason) > maxText {
		return gone(fmt.Errorf("reason of %d bytes", len(m.Reason)))
	}
	return sink.Skip(string(m.Name), m.Reason)
}

// file offers one file to sink and passes its bytes on if they are wanted.
func (l *Link) file(f frame.Frame, sink engine.Outbox) error {
	var m frame.FileMessage
	if err := f.Decode(&m); err != nil {
		return gone(err)
	}
	name := string(m.Name)
	if err := checkName(name); err != nil {
		return gone(err)
	}
	if m.Size < 0 || m.Mode > uint32(fs.ModePerm) {
		return gone(fmt.Errorf("%q has size %d and mode %o", name, m.Size, m.Mode))
	}
	to, err := sink.File(name, fs.FileMode(m.Mode), m.Size)
	if err != nil {
		return err
	}
	if to == nil {
		return l.answer(frame.Leave)
	}
	whole, err := l.receive(to, m.Size)
	if err != nil {
		to.Abort()
		return fmt.Errorf("%q: %w", name, err)
	}
	if !whole {
		to.Abort()
		return nil
	}
	return to.Commit()
}

func (l *Link) answer(t frame.Type) error {
	if err := l.out.Write(t, nil); err != nil {
		return gone(err)
	}
	return nil
}

// receive passes size bytes on; whole is false when init could not read them all.
func (l *Link) receive(to engine.OutboxFile, size int64) (whole bool, err error) {
	if err := l.answer(frame.Take); err != nil {
		return false, err
	}
	for left := size; ; {
		f, err := l.in.Next()
		if err != nil {
			return false, gone(err)
		}
		switch {
		case f.Type == frame.Data && int64(len(f.Payload)) <= left:
			left -= int64(len(f.Payload))
			if _, err := to.Write(f.Payload); err != nil {
				return false, err
			}
		case f.Type == frame.FileEnd && left == 0:
			return true, nil
		case f.Type == frame.FileAbort:
			return false, nil
		default:
			return false, gone(unexpected(f, fmt.Sprintf("with %d of %d bytes to come", left, size)))
		}
	}
}

// checkName refuses what is not a clean relative path. It need not be UTF-8.
func checkName(name string) error {
	if name == "" || len(name) > maxName || strings.ContainsRune(name, 0) {
		return fmt.Errorf("name of %d bytes: %.80q", len(name), name)
	}
	parts := strings.Split(name, "/")
	if len(parts) > maxDepth {
		return fmt.Errorf("name of %d components", len(parts))
	}
	for _, part := range parts {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("name %.80q", name)
		}
	}
	return nil
}

// gone is the class of what init did or did not do.
func gone(why error) error { return fmt.Errorf("%w: %w", why, errdefs.ErrUnavailable) }
