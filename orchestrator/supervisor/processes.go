package supervisor

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"mcpx/orchestrator/supervisor/proctree"
)

// ErrNotFirst says that init is not the first process of a container, and was
// not told to be a host's subreaper: it must not signal everyone there.
var ErrNotFirst = errors.New("init is not the first process of a container")

// processes are all processes of the script.
type processes struct {
	below bool // they are those below us; else everyone but us
}

func newProcesses(subreaper bool) (processes, error) {
	if !subreaper {
		if os.Getpid() != 1 {
			return processes{}, ErrNotFirst
		}
		return processes{}, nil
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return processes{}, fmt.Errorf("subreaper: %w", err)
	}
	return processes{below: true}, nil
}

// signal sends sig to all of them.
func (p processes) signal(sig syscall.Signal) error {
	if p.below {
		return signalBelow(sig)
	}
	return signalEveryone(sig)
}

// signalEveryone is kill(-1), which on a host would be the end of the host:
// therefore the question stands right here, whatever callers have asked before.
func signalEveryone(sig syscall.Signal) error {
	if os.Getpid() != 1 {
		return ErrNotFirst
	}
	err := syscall.Kill(-1, sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil // there is no one
	}
	return err
}

func signalBelow(sig syscall.Signal) error {
	list, err := proctree.Descendants(os.Getpid())
	if err != nil {
		return err
	}
	var failed []error
	for _, p := range list {
		if err := p.Signal(sig); err != nil && !errors.Is(err, proctree.ErrGone) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
