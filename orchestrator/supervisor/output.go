package supervisor

import (
	"errors"
	"os"
	"syscall"
	"time"

	"mcpx/orchestrator/frame"
)

// output passes what a script writes on. A daemon that does not read lets the
// pipe fill, and the script wait.
type output struct {
	pipe *os.File
	to   *frame.Writer
	as   frame.Type
	done chan struct{}
}

func startOutput(pipe *os.File, to *frame.Writer, as frame.Type) *output {
	o := &output{pipe, to, as, make(chan struct{})}
	go o.run()
	return o
}

func (o *output) run() {
	defer close(o.done)
	defer o.pipe.Close()
	buf := make([]byte, frame.MaxData)
	read := o.pipe.Read
	for {
		n, err := read(buf)
		if n > 0 && o.to.Write(o.as, buf[:n]) != nil {
			return // the listener sees that the connection is gone
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			o.pipe.SetReadDeadline(time.Time{}) //nolint:errcheck // then the read tells
			read = o.readRest
			continue
		}
		if err != nil || n == 0 {
			return
		}
	}
}

// finish takes what is in the pipe when no process is left to write. It does
// not wait for the end of file: a descriptor that was sent through a socket may
// keep a pipe open.
func (o *output) finish() {
	o.pipe.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // it fails when the pipe has ended
	<-o.done
}

// readRest reads without waiting.
func (o *output) readRest(buf []byte) (n int, err error) {
	raw, err := o.pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Read(func(fd uintptr) bool {
		n, err = syscall.Read(int(fd), buf)
		return true
	})
	return max(n, 0), errors.Join(failed, err)
}
