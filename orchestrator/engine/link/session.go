package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/frame"
)

// lateBytes is what may still be in pipes and sockets when a script has been
// killed. More than that is not from it.
const lateBytes = 4 << 20

// session is the conversation about one job.
type session struct {
	link  *Link
	grace time.Duration
	stdio engine.IO
	stdin *feed

	started bool
	cut     bool // a frame of ours was not written whole

	// What follows concerns the end that was asked for.
	stopping sync.Once
	mu       sync.Mutex
	stopAt   time.Time     // when init must have reported; zero while nothing was asked for
	waitLeft time.Duration // for what has been sent by then and waits for a slow writer
	lateLeft int
	failed   error
}

func newSession(l *Link, grace time.Duration, stdio engine.IO) *session {
	if stdio.Stdout == nil {
		stdio.Stdout = io.Discard
	}
	if stdio.Stderr == nil {
		stdio.Stderr = io.Discard
	}
	return &session{link: l, grace: max(grace, 0), stdio: stdio, waitLeft: l.config.Margin, lateLeft: lateBytes}
}

// run goes from the job to init's report. Its error is ErrLost, or that the
// job can't be sent.
func (s *session) run(ctx context.Context, job engine.Job) (engine.Exit, error) {
	unhook := context.AfterFunc(ctx, s.stop)
	defer s.settle(unhook)
	if err := s.link.out.WriteMessage(frame.Job, message(job, s.stdio.Stdin != nil, s.link.config.MaxEntries)); err != nil {
		if invalid := new(frame.InvalidError); errors.As(err, &invalid) {
			return engine.Exit{}, fmt.Errorf("job: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		return engine.Exit{}, lost(err)
	}
	s.stdin = startFeed(s.link.out, s.stdio.Stdin, s.fail)
	defer s.endStdin()
	return s.follow()
}

// message puts a job into the form of the wire.
func message(job engine.Job, stdin bool, entries int) frame.JobMessage {
	return frame.JobMessage{
		Argv: bytesOf(job.Argv), Env: bytesOf(job.Env), Cwd: []byte(job.Cwd), Stdin: stdin, MaxEntries: entries,
	}
}

func bytesOf(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, text := range list {
		out[i] = []byte(text)
	}
	return out
}

// follow reads what init tells until it reports the exit.
func (s *session) follow() (engine.Exit, error) {
	for {
		f, err := s.next()
		if err != nil {
			return engine.Exit{}, lost(err)
		}
		if f.Type == frame.Exit {
			exit, err := s.exit(f)
			if err != nil {
				return engine.Exit{}, lost(err)
			}
			return exit, nil
		}
		if err := s.take(f); err != nil {
			return engine.Exit{}, lost(err)
		}
	}
}

// next reads a frame, no longer than a stop that was asked for allows.
func (s *session) next() (frame.Frame, error) {
	began := time.Now()
	late := s.arm(began)
	f, err := s.link.in.Next()
	if !late {
		return f, err
	}
	s.waitLeft -= time.Since(began)
	if began.After(s.stopAt) {
		s.lateLeft -= len(f.Payload)
	}
	if err == nil && s.lateLeft < 0 {
		err = errors.New("output goes on after the script was killed")
	}
	return f, err
}

// arm sets the deadline of the next read. Time that a slow writer took is not
// init's fault, so what init had sent may still come after stopAt: that is late.
func (s *session) arm(now time.Time) (late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopAt.IsZero() {
		return false
	}
	deadline := s.stopAt
	if least := now.Add(s.waitLeft); least.After(deadline) {
		deadline, late = least, true
	}
	s.link.conn.SetReadDeadline(deadline) //nolint:errcheck // then the read tells
	return late
}

// take handles every frame but the exit's.
func (s *session) take(f frame.Frame) error {
	if f.Type == frame.Started {
		return s.begin(f)
	}
	if !s.started {
		return unexpected(f, "before the script started")
	}
	switch f.Type {
	case frame.Stdout:
		s.write(&s.stdio.Stdout, "stdout", f.Payload)
	case frame.Stderr:
		s.write(&s.stdio.Stderr, "stderr", f.Payload)
	case frame.Credit:
		return s.stdin.credit(f.Credit())
	case frame.StdinClosed:
		s.stdin.stop()
	default:
		return unexpected(f, "while the script runs")
	}
	return nil
}

func (s *session) begin(f frame.Frame) error {
	if s.started {
		return unexpected(f, "twice")
	}
	s.started = true
	if s.stdio.Started != nil {
		s.stdio.Started()
	}
	return nil
}

// write hands output on. A writer that fails ends the script and sees no more.
func (s *session) write(to *io.Writer, name string, p []byte) {
	n, err := (*to).Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		*to = io.Discard
		s.fail(fmt.Errorf("%s of the script: %w", name, err))
	}
}

// fail notes an error on this side and asks for the script's end.
func (s *session) fail(err error) {
	s.mu.Lock()
	s.failed = errors.Join(s.failed, err)
	s.mu.Unlock()
	s.stop()
}

func (s *session) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// stop asks for the script's end, once. Later calls wait for the first.
func (s *session) stop() {
	s.stopping.Do(func() {
		s.mu.Lock()
		s.stopAt = time.Now().Add(s.grace + s.link.config.Margin)
		s.link.conn.SetDeadline(s.stopAt) //nolint:errcheck // it fails on a closed connection only
		s.mu.Unlock()
		// An error shows itself to the reader, who is waiting for the exit.
		s.link.out.WriteMessage(frame.Stop, frame.StopMessage{GraceMs: s.grace.Milliseconds()}) //nolint:errcheck
	})
}

// endStdin ends the feeding, which an init that does not read may hold up. A
// frame that was cut leaves the connection without sense.
func (s *session) endStdin() {
	deadline := time.Now().Add(s.link.config.Margin)
	s.link.conn.SetWriteDeadline(deadline) //nolint:errcheck // then the write tells
	s.cut = s.stdin.close()
}

// settle makes sure that nothing of this job is sent from now on, and takes
// its deadlines off the connection.
func (s *session) settle(unhook func() bool) {
	unhook()
	s.stopping.Do(func() {})             // waits for one that is under way
	s.link.conn.SetDeadline(time.Time{}) //nolint:errcheck // it fails on a closed connection only
}
