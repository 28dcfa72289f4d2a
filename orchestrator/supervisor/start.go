package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"mcpx/orchestrator/frame"
)

// startError is why a script could not be started, for the daemon.
type startError struct {
	kind string
	why  error
}

func (e *startError) Error() string { return e.why.Error() }
func (e *startError) Unwrap() error { return e.why }

// maxStartError bounds the report; names in it are the caller's.
const maxStartError = 2 << 10

func startReport(err error) frame.ExitMessage {
	kind := frame.StartOther
	if start := new(startError); errors.As(err, &start) {
		kind = start.kind
	}
	text := err.Error()
	text = text[:min(len(text), maxStartError)]
	return frame.ExitMessage{Code: -1, StartError: strings.ToValidUTF8(text, "\uFFFD"), StartKind: kind}
}

// startScript starts the job's process in a session of its own.
func startScript(job frame.JobMessage, all processes, score *oomScore) (*script, error) {
	c := command{argv: texts(job.Argv), env: texts(job.Env), cwd: string(job.Cwd)}
	if err := c.resolve(); err != nil {
		return nil, err
	}
	s := &script{all: all, gone: make(chan struct{})}
	theirs, err := s.openPipes()
	if err != nil {
		return nil, err
	}
	score.raised(func() { s.pid, err = c.fork(theirs, all.below) })
	closeAll(theirs)
	if err != nil {
		s.closePipes()
		return nil, err
	}
	return s, nil
}

func texts(list [][]byte) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
	}
	return out
}

// openPipes makes the script's standard streams. Only our ends are
// non-blocking: scripts expect theirs to block.
func (s *script) openPipes() (theirs []uintptr, err error) {
	for _, stream := range []struct {
		ours **os.File
		end  int // ours
		name string
	}{{&s.stdin, 1, "stdin"}, {&s.stdout, 0, "stdout"}, {&s.stderr, 0, "stderr"}} {
		var ends [2]int
		if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
			closeAll(theirs)
			s.closePipes()
			return nil, fmt.Errorf("%s: %w", stream.name, err)
		}
		// Of a descriptor that is open this can't fail.
		syscall.SetNonblock(ends[stream.end], true) //nolint:errcheck
		*stream.ours = os.NewFile(uintptr(ends[stream.end]), stream.name)
		theirs = append(theirs, uintptr(ends[1-stream.end]))
	}
	return theirs, nil
}

func (s *script) closePipes() {
	for _, f := range []*os.File{s.stdin, s.stdout, s.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

func closeAll(fds []uintptr) {
	for _, fd := range fds {
		syscall.Close(int(fd)) //nolint:errcheck // nothing was written through it
	}
}

// command is what to execute.
type command struct {
	argv, env []string
	cwd       string
	path      string // of argv[0]
}

// resolve finds the program and sees that the directory can be entered, so
// that the errors of the two can be told apart.
func (c *command) resolve() error {
	if len(c.argv) == 0 || c.argv[0] == "" {
		return &startError{frame.StartOther, errors.New("no command is given")}
	}
	if err := c.enter(); err != nil {
		return &startError{frame.StartBadCwd, err}
	}
	return c.lookUp()
}

func (c *command) enter() error {
	info, err := os.Stat(c.cwd)
	switch {
	case err != nil:
		return fmt.Errorf("working directory: %w", err)
	case !info.IsDir():
		return fmt.Errorf("working directory %s is not a directory", c.cwd)
	}
	if err := syscall.Access(c.cwd, accessExecute); err != nil {
		return fmt.Errorf("working directory %s: %w", c.cwd, err)
	}
	return nil
}

const (
	accessExecute = 1
	// defaultPath is searched when the job has no PATH.
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// lookUp finds argv[0] as a shell would, on the job's PATH.
func (c *command) lookUp() error {
	name := c.argv[0]
	if strings.Contains(name, "/") {
		c.path = name
		return nil
	}
	found := ""
	for _, dir := range strings.Split(c.searchPath(), ":") {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(c.cwd, dir)
		}
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil || info.IsDir() {
			continue
		}
		if syscall.Access(path, accessExecute) == nil {
			c.path = path
			return nil
		}
		found = path
	}
	if found != "" {
		return &startError{frame.StartNotExecutable, fmt.Errorf("%s can't be executed", found)}
	}
	return &startError{frame.StartNotFound, fmt.Errorf("%s is not on the PATH %s", name, c.searchPath())}
}

func (c *command) searchPath() string {
	path := defaultPath
	for _, v := range c.env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			path = value
		}
	}
	return path
}

// fork starts the process.
func (c *command) fork(files []uintptr, dieWithUs bool) (int, error) {
	sys := &syscall.SysProcAttr{Setsid: true}
	if dieWithUs {
		sys.Pdeathsig = syscall.SIGKILL
	}
	pid, err := syscall.ForkExec(c.path, c.argv, &syscall.ProcAttr{Dir: c.cwd, Env: c.env, Files: files, Sys: sys})
	if err != nil {
		return 0, &startError{c.kindOf(err), fmt.Errorf("%s: %w", c.path, err)}
	}
	return pid, nil
}

func (c *command) kindOf(err error) string {
	switch {
	case errors.Is(err, syscall.E2BIG):
		return frame.StartTooLarge
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENOEXEC):
		return frame.StartNotExecutable
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return c.missing()
	}
	return frame.StartOther
}

// missing tells a program that is not there from one whose own interpreter,
// or loader, is not.
func (c *command) missing() string {
	path := c.path
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.cwd, path)
	}
	if _, err := os.Stat(path); err == nil {
		return frame.StartNotExecutable
	}
	return frame.StartNotFound
}
