package supervisor

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"mcpx/orchestrator/frame"
)

// session is the conversation about one job. Its listener never waits for the
// script, nor for the daemon to read: whatever else is stuck, a stop is heard.
type session struct {
	*supervisor
	conn     net.Conn
	out      *frame.Writer
	script   *script // nil when it could not be started
	input    *input
	entries  int
	answers  chan bool   // to the file that the walk has offered
	reported atomic.Bool // the exit has been sent
	walking  atomic.Bool
	failure  atomic.Pointer[error] // why we hung up
}

// begin starts the script and what serves it. Its error is that of the
// connection: what the script suffers is reported to the daemon.
func (s *session) begin(job frame.JobMessage) error {
	s.entries = job.MaxEntries
	before := oomKills(s.config.Cgroup)
	script, err := startScript(job, s.all, s.score)
	if err != nil {
		return s.report(startReport(err))
	}
	s.script = script
	s.input = newInput(script.stdin, s.out, job.Stdin)
	go script.reap()
	go s.serve(before)
	return nil
}

// serve goes from the script's start to the report of its exit. Errors are the
// connection's, which the listener sees as well.
func (s *session) serve(oomBefore int) {
	if err := s.out.Write(frame.Started, nil); err != nil {
		return
	}
	go s.input.run()
	stdout := startOutput(s.script.stdout, s.out, frame.Stdout)
	stderr := startOutput(s.script.stderr, s.out, frame.Stderr)
	<-s.script.gone
	stdout.finish()
	stderr.finish()
	s.input.close()
	if s.relay != nil {
		s.relay.close()
	}
	message := s.script.exit()
	message.OOMKills = oomKillsSince(s.config.Cgroup, oomBefore)
	s.report(message) //nolint:errcheck // as above
}

func (s *session) report(m frame.ExitMessage) error {
	s.reported.Store(true) // before the daemon can have read it
	return s.out.WriteMessage(frame.Exit, m)
}

// hangUp ends the connection, and with it the listening, because of err.
func (s *session) hangUp(err error) {
	s.failure.Store(&err)
	s.conn.Close() //nolint:errcheck // err is the one to tell
}

// listen does what the daemon says until the connection ends.
func (s *session) listen(in *frame.Reader) error {
	for {
		f, err := in.Next()
		if why := s.failure.Load(); why != nil {
			return *why
		}
		if err != nil {
			return err
		}
		if err := s.obey(f); err != nil {
			return err
		}
	}
}

func (s *session) obey(f frame.Frame) error {
	switch f.Type {
	case frame.Stdin, frame.StdinEOF, frame.Stop, frame.Kill:
		if s.script == nil {
			return nil // it was sent before the daemon could know
		}
		return s.direct(f)
	case frame.Collect:
		if !s.reported.Load() || s.walking.Swap(true) {
			return errors.New("collect frame out of its order")
		}
		go s.walk()
		return nil
	case frame.Take, frame.Leave:
		select {
		case s.answers <- f.Type == frame.Take:
			return nil
		default:
			return fmt.Errorf("%s frame without a file", f.Type)
		}
	}
	return fmt.Errorf("%s frame out of its order", f.Type)
}

// direct passes on what concerns the script.
func (s *session) direct(f frame.Frame) error {
	switch f.Type {
	case frame.Stdin:
		return s.input.add(f.Payload)
	case frame.StdinEOF:
		s.input.end()
		return nil
	case frame.Kill:
		return s.script.kill()
	}
	var m frame.StopMessage
	if err := f.Decode(&m); err != nil {
		return err
	}
	return s.script.stop(m.Grace())
}
