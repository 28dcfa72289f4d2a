package problem

import (
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"mcpx/orchestrator/run"
)

// exitSignalled is what shells add to a signal's number.
const exitSignalled = 128

// unknownSignal makes 255, which no signal has.
const unknownSignal = 127

// ExitCode is the command line's exit code for a run that ended: the script's
// own, or what a shell would say in its place.
func ExitCode(r run.Result) int {
	switch r.State {
	case run.Exited:
		if r.ExitCode != nil {
			return *r.ExitCode
		}
	case run.Signalled:
		return exitSignalled + signalNumber(r.Signal)
	case run.TimedOut:
		return ExitTimeout
	case run.OOMKilled:
		return exitSignalled + int(syscall.SIGKILL)
	case run.OutputLimit:
		return exitSignalled + int(syscall.SIGXFSZ)
	case run.Cancelled:
		return ExitCancelled
	case run.Denied:
		return ExitDenied
	}
	return ExitOurs
}

// signalNumber knows SIGKILL, and SIG35 for a signal that has no name. A name
// nobody knows still must not look like success.
func signalNumber(name string) int {
	if n := unix.SignalNum(name); n != 0 {
		return int(n)
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(name, "SIG")); err == nil && n > 0 && n < 65 {
		return n
	}
	return unknownSignal
}
