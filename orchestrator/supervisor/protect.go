package supervisor

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// standFast makes init deaf to signals and closed to its peers. Every step is
// tried, whatever came of the others.
func standFast(subreaper bool) error {
	// Nobody reads the channel: what is caught does nothing.
	signal.Notify(make(chan os.Signal, 1))
	var faults error
	if !subreaper {
		faults = defaultFaults()
	}
	return errors.Join(faults, closeOnExec(), notDumpable())
}

// closeOnExec keeps from the script what whoever started us has left open.
func closeOnExec() error {
	if err := unix.CloseRange(firstFree, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("inherited descriptors: %w", err)
	}
	return nil
}

// notDumpable closes init's memory and its files in /proc to its own uid.
func notDumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("not dumpable: %w", err)
	}
	return nil
}

// firstFree is the first descriptor that is not a standard stream.
const firstFree = 3

// defaultFaults gives the signals of a fault their default action. The runtime
// takes one for a fault of its own if it is sent with sigqueue, and would
// panic; the kernel drops signals of default action that come from inside the
// container when they are for its first process. A real fault still ends it.
func defaultFaults() error {
	for _, sig := range []syscall.Signal{
		syscall.SIGILL, syscall.SIGTRAP, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGSTKFLT, syscall.SIGSYS,
		// C libraries keep these to themselves, and Go leaves them as they were:
		// ignored, if whoever started us ignored them, and so for the script.
		32, 33, 34,
	} {
		var action [64]byte // all zero is the default on every architecture
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
		if errno != 0 {
			return fmt.Errorf("default action of %s: %w", sig, errno)
		}
	}
	return nil
}

// A script is the memory limit's victim before init: it has this much more of a
// score. It could lower its own to init's, not below.
const (
	scoreAbove = 500
	scoreMax   = 1000
)

// oomScore is init's oom_score_adj. It is opened before init is closed to its
// uid, which this file would be too.
type oomScore struct {
	file *os.File
	own  int
}

func openOOMScore() (*oomScore, error) {
	file, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	s := &oomScore{file: file}
	if err := s.try(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}

// try reads the score, and sees that it can be raised and lowered again.
func (s *oomScore) try() error {
	var text [16]byte
	n, err := s.file.Read(text[:])
	if err != nil {
		return fmt.Errorf("oom score: %w", err)
	}
	if s.own, err = strconv.Atoi(strings.TrimSpace(string(text[:n]))); err != nil {
		return fmt.Errorf("oom score: %w", err)
	}
	return errors.Join(s.set(s.own+scoreAbove), s.set(s.own))
}

// raised calls start, whose child inherits a raised score.
func (s *oomScore) raised(start func()) {
	if s != nil {
		// That both work has been tried.
		s.set(s.own + scoreAbove) //nolint:errcheck
		defer s.set(s.own)        //nolint:errcheck
	}
	start()
}

func (s *oomScore) set(score int) error {
	if _, err := s.file.WriteAt([]byte(strconv.Itoa(min(score, scoreMax))), 0); err != nil {
		return fmt.Errorf("oom score %d: %w", score, err)
	}
	return nil
}
