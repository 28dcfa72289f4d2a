// Package proctree finds and signals the processes below one of this host. A
// process is its id and its start time, for ids are used again.
package proctree

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is one process.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after the boot
}

// ErrGone says that a process has ended.
var ErrGone = errors.New("process is gone")

// Find looks a living process up; ErrGone when there is none of that id.
func Find(pid int) (Process, error) {
	s, err := stat(pid)
	if err == nil && s.zombie {
		err = ErrGone
	}
	return s.Process, err
}

// Signal sends sig to p and to no other process; ErrGone when it has ended.
func (p Process) Signal(sig syscall.Signal) error {
	return p.held(func(fd int) error {
		err := unix.PidfdSendSignal(fd, sig, nil, 0)
		if errors.Is(err, unix.ESRCH) {
			return ErrGone
		}
		return err
	})
}

// Wait waits for the end of p, which need not be a child, and reports whether
// it came within the timeout.
func (p Process) Wait(timeout time.Duration) (bool, error) {
	ended := false
	err := p.held(func(fd int) error {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for until := time.Now().Add(timeout); ; {
			n, err := unix.Poll(poll, int(max(time.Until(until).Milliseconds(), 0)))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			ended = n > 0
			return err
		}
	})
	if errors.Is(err, ErrGone) {
		return true, nil
	}
	return ended, err
}

// held calls do with a descriptor that stands for p and nobody else.
func (p Process) held(do func(fd int) error) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	// Whoever has the id now keeps it in our descriptor, so this can't be outrun.
	now, err := stat(p.PID)
	if err != nil {
		return err
	}
	if now.Start != p.Start {
		return ErrGone
	}
	return do(fd)
}

// Descendants lists the living processes below pid, parents before children.
func Descendants(pid int) ([]Process, error) {
	children, err := families()
	if err != nil {
		return nil, err
	}
	var out []Process
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		for _, child := range children[next[0]] {
			next = append(next, child.PID)
			if !child.zombie {
				out = append(out, child.Process)
			}
		}
	}
	return out, nil
}

// families maps a parent's id to its children.
func families() (map[int][]status, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	children := make(map[int][]status)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue // not a process
		}
		s, err := stat(pid)
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		children[s.parent] = append(children[s.parent], s)
	}
	return children, nil
}

type status struct {
	Process
	parent int
	zombie bool
}

// Places in /proc/PID/stat behind the command's name.
const (
	statState  = 0
	statParent = 1
	statStart  = 19
)

func stat(pid int) (status, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return status{}, ErrGone
	}
	if err != nil {
		return status{}, err
	}
	// The name is in parentheses and may hold anything, those too.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) <= statStart {
		return status{}, fmt.Errorf("process %d: its status has %d fields", pid, len(fields))
	}
	parent, err := strconv.Atoi(fields[statParent])
	if err != nil {
		return status{}, fmt.Errorf("process %d: parent: %w", pid, err)
	}
	start, err := strconv.ParseUint(fields[statStart], 10, 64)
	if err != nil {
		return status{}, fmt.Errorf("process %d: start: %w", pid, err)
	}
	zombie := strings.ContainsAny(fields[statState], "ZX")
	return status{Process{pid, start}, parent, zombie}, nil
}
