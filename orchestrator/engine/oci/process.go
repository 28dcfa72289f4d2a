package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is the first one of a container. It is no child of ours: the runtime
// that started it has ended.
type process struct {
	pid  int
	file *os.File // pidfd
}

// errEnded is that there is no such process any more.
var errEnded = errors.New("it has ended")

// findInit opens the process whose number the runtime wrote down.
func (c *Container) findInit() (*process, error) {
	text, err := os.ReadFile(filepath.Join(c.dir, pidName))
	if err != nil {
		return nil, fmt.Errorf("pid of init: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("pid of init: %w", err)
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, errEnded
	}
	if err != nil {
		return nil, fmt.Errorf("init: %w", err)
	}
	p := &process{pid: pid, file: os.NewFile(uintptr(fd), "init")}
	if !c.group.holds(pid) { // somebody else has the number by now
		return nil, errors.Join(errEnded, p.file.Close())
	}
	return p, nil
}

// wait returns nil when the process has ended, else the cause of ctx's end.
func (p *process) wait(ctx context.Context) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		p.file.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // then the wait is longer
	})
	err = raw.Read(func(fd uintptr) bool { return hasEnded(int(fd)) })
	if stop() {
		return err
	}
	p.file.SetReadDeadline(time.Time{}) //nolint:errcheck // as above
	if err == nil {
		return nil
	}
	return context.Cause(ctx)
}

func hasEnded(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n == 1
}

func (p *process) kill() error {
	return p.do(func(fd int) error { return ended(unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)) })
}

func (p *process) do(do func(fd int) error) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var did error
	if err := raw.Control(func(fd uintptr) { did = do(int(fd)) }); err != nil {
		return err
	}
	return did
}

// status is how the process ended, where the kernel still knows (since 6.15).
func (p *process) status() (status unix.WaitStatus, known bool) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	err := p.do(func(fd int) error { return unix.IoctlPidfdInfo(fd, &info) })
	if err != nil || info.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return 0, false
	}
	return unix.WaitStatus(info.Exit_code), true
}

// ending is status in words.
func (p *process) ending() string {
	status, known := p.status()
	switch {
	case !known:
		return "code unknown"
	case status.Signaled():
		return unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("code %d", status.ExitStatus())
}

// reap takes an ended process away if it has come to be a child of ours, as it
// does where we are the first process ourselves.
func (p *process) reap() {
	var status unix.WaitStatus
	unix.Wait4(p.pid, &status, unix.WNOHANG, nil) //nolint:errcheck // mostly it is none
}
