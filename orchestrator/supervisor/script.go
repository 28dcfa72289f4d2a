package supervisor

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"mcpx/orchestrator/frame"
)

// script is the job's first process with everything that comes of it.
type script struct {
	pid    int
	all    processes
	stdin  *os.File // our ends
	stdout *os.File
	stderr *os.File
	gone   chan struct{} // closed when no process is left

	mu       sync.Mutex
	status   syscall.WaitStatus
	stopping *time.Timer // runs while the grace of a stop does
	doomed   bool        // whatever lives has to die
	over     bool
}

// reap waits for every process: orphans come to us. When the first one has
// ended, or time is up, it kills until no one is left.
func (s *script) reap() {
	defer close(s.gone)
	for {
		pid, status, err := wait(0)
		if errors.Is(err, syscall.ECHILD) {
			s.end()
			return
		}
		s.reaped(pid, status)
		for err == nil {
			if pid, status, err = wait(syscall.WNOHANG); pid == 0 {
				break
			}
			s.reaped(pid, status)
		}
		if s.isDoomed() {
			// One that was forked meanwhile is found when its parent is reaped,
			// so an error here is met again or does not matter.
			s.all.signal(syscall.SIGKILL) //nolint:errcheck
		}
	}
}

// wait reaps a child; 0 when none has ended and options are WNOHANG.
func wait(options int) (int, syscall.WaitStatus, error) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, options, nil)
		if !errors.Is(err, syscall.EINTR) {
			return pid, status, err
		}
	}
}

func (s *script) reaped(pid int, status syscall.WaitStatus) {
	if pid != s.pid {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
	// After a stop the others have the rest of the grace, as the first one had.
	s.doomed = s.doomed || s.stopping == nil
}

func (s *script) isDoomed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doomed
}

func (s *script) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.stopping != nil {
		s.stopping.Stop()
	}
}

// stop asks every process to end, and kills them when the grace is over. Only
// the first call counts.
func (s *script) stop(grace time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.doomed || s.stopping != nil {
		return nil
	}
	s.stopping = time.AfterFunc(grace, func() {
		s.kill() //nolint:errcheck // the reaper goes on with it
	})
	// One that is stopped gets the SIGTERM when it goes on.
	return errors.Join(s.all.signal(syscall.SIGTERM), s.all.signal(syscall.SIGCONT))
}

// kill ends every process.
func (s *script) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	s.doomed = true
	return s.all.signal(syscall.SIGKILL)
}

// exit is how the first process ended, once all are gone.
func (s *script) exit() frame.ExitMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Signaled() {
		return frame.ExitMessage{Code: -1, Signal: frame.SignalName(int(s.status.Signal()))}
	}
	return frame.ExitMessage{Code: s.status.ExitStatus()}
}
