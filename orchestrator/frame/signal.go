package frame

import (
	"fmt"
)

// Linux's real-time signals, as a C library counts them.
const (
	firstRealTime = 34
	lastRealTime  = 64
	realTime      = "SIGRTMIN"
)

// signals are the names of Linux's signals; containers are Linux whatever the
// daemon is.
func signals() [32]string {
	return [...]string{
		1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
		9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
		16: "SIGSTKFLT", 17: "SIGCHLD", 18: "SIGCONT", 19: "SIGSTOP", 20: "SIGTSTP", 21: "SIGTTIN", 22: "SIGTTOU",
		23: "SIGURG", 24: "SIGXCPU", 25: "SIGXFSZ", 26: "SIGVTALRM", 27: "SIGPROF", 28: "SIGWINCH", 29: "SIGIO",
		30: "SIGPWR", 31: "SIGSYS",
	}
}

// SignalName names Linux's signal n: "SIGKILL", "SIGRTMIN+2", or "SIG33".
func SignalName(n int) string {
	if names := signals(); n > 0 && n < len(names) {
		return names[n]
	}
	if n >= firstRealTime && n <= lastRealTime {
		return fmt.Sprintf("%s+%d", realTime, n-firstRealTime)
	}
	return fmt.Sprintf("SIG%d", n)
}

// KnownSignal reports whether SignalName yields name for a signal there is.
func KnownSignal(name string) bool {
	for n := 1; n <= lastRealTime; n++ {
		if SignalName(n) == name {
			return true
		}
	}
	return false
}
