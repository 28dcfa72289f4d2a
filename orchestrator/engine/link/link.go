// Package link is the daemon's end of the connection of a container's init.
// Engines differ in how they make containers; once init has connected, they
// all use a Link. Init is a stranger here: whatever it sends is checked.
package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/frame"
)

// ErrLost says that the connection ended, or made no sense any more, before
// init reported the script's exit: the engine has to look itself. Its class is
// errdefs.ErrUnavailable.
var ErrLost = fmt.Errorf("init did not report the script's exit: %w", errdefs.ErrUnavailable)

// Config has defaults for what is zero.
type Config struct {
	// Margin is how long init may take beside what a script is granted.
	Margin time.Duration
	// MaxEntries bounds the entries of an outbox.
	MaxEntries int
}

// Defaults of a Config.
const (
	DefaultMargin     = 2 * time.Second
	DefaultMaxEntries = 10_000
)

// Link is the connection of one container's init. Run and Collect are called
// one after the other, Close at any time.
type Link struct {
	conn   net.Conn
	config Config
	in     *frame.Reader
	out    *frame.Writer
	hello  frame.HelloMessage
	state  state
	oom    int
	failed error // stdio's, of Run

	closing sync.Once
	closed  error
}

// state is where in the protocol a Link stands.
type state int

const (
	waiting state = iota // init waits for its job
	running
	ended  // init has reported
	broken // nothing that comes makes sense any more
)

// New greets the init that conn leads to. On error conn is closed.
func New(ctx context.Context, conn net.Conn, c Config) (*Link, error) {
	if c.Margin == 0 {
		c.Margin = DefaultMargin
	}
	if c.MaxEntries == 0 {
		c.MaxEntries = DefaultMaxEntries
	}
	l := &Link{
		conn: conn, config: c, oom: frame.OOMUnknown,
		in: frame.NewReader(conn), out: frame.NewWriter(conn),
	}
	if err := l.greet(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("greeting of init: %w", err), l.Close())
	}
	return l, nil
}

func (l *Link) greet(ctx context.Context) error {
	release := l.interruptible(ctx)
	f, err := l.in.Next()
	if ended := release(); ended != nil {
		return ended
	}
	if err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrUnavailable)
	}
	if f.Type != frame.Hello {
		return fmt.Errorf("%s frame: %w", f.Type, errdefs.ErrFailedPrecondition)
	}
	if err := f.Decode(&l.hello); err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrFailedPrecondition)
	}
	if l.hello.Protocol != frame.Protocol {
		return fmt.Errorf("it speaks protocol %.20q, not %q: %w", l.hello.Protocol, frame.Protocol, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// interruptible lets the end of ctx end reads and writes. Its result has to be
// called afterwards; it returns ctx's cause if that happened.
func (l *Link) interruptible(ctx context.Context) func() error {
	stop := context.AfterFunc(ctx, func() {
		l.conn.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // it fails on a closed connection only
	})
	return func() error {
		if stop() {
			return nil
		}
		l.state = broken
		return context.Cause(ctx)
	}
}

// Endpoint is the address inside the container where init relays to the run's
// socket; "" when there is none.
func (l *Link) Endpoint() string { return l.hello.Endpoint }

// Version is what init calls itself.
func (l *Link) Version() string { return l.hello.Version }

// Problems are what init could not set up although a script can run without.
func (l *Link) Problems() []string { return l.hello.Problems }

// OOMKills is how many processes the memory limit killed during Run, as init
// saw it; known is false when init can't see that, or did not report.
func (l *Link) OOMKills() (n int, known bool) {
	return max(l.oom, 0), l.oom >= 0
}

// Close ends the connection, and with it the container's processes. It is
// idempotent and ends a Run or Collect that is under way.
func (l *Link) Close() error {
	l.closing.Do(func() { l.closed = l.conn.Close() })
	return l.closed
}

// Run hands the job to init and returns with init's report of the exit, as
// engine.Container.Run promises. Job.Files is not its matter: see PlaceFiles.
//
// When ctx has ended and init does not report within job.Grace and the margin,
// the error is ErrLost and the connection is closed. A stdio.Stdin that never
// returns from Read keeps its goroutine until it does.
func (l *Link) Run(ctx context.Context, job engine.Job, stdio engine.IO) (engine.Exit, error) {
	if l.state != waiting {
		return engine.Exit{Code: -1}, fmt.Errorf("job for an init that does not wait for one: %w", errdefs.ErrFailedPrecondition)
	}
	if ctx.Err() != nil {
		return engine.Exit{Code: -1}, fmt.Errorf("job not begun: %w", context.Cause(ctx))
	}
	l.state = running
	s := newSession(l, job.Grace, stdio)
	exit, err := s.run(ctx, job)
	l.failed = s.failure()
	if err != nil {
		l.state = broken
		return engine.Exit{Code: -1}, errors.Join(err, l.failed, l.Close())
	}
	l.state = ended
	if s.cut {
		l.state = broken
	}
	return exit, l.failed
}

// Failure is the error of stdio that ended the script during Run, nil for
// none. It is for an engine that finds the exit by itself after ErrLost.
func (l *Link) Failure() error { return l.failed }

// lost wraps what ended the conversation.
func lost(why error) error { return fmt.Errorf("%w: %w", ErrLost, why) }

// unexpected is a frame out of its order.
func unexpected(f frame.Frame, when string) error {
	return fmt.Errorf("%s frame %s", f.Type, when)
}
