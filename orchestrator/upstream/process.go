package upstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"mcpx/orchestrator/supervisor/proctree"
)

// How long a server that is asked to end may take for it.
const (
	graceStdin = 2 * time.Second // after its stdin was closed
	graceTerm  = time.Second     // after SIGTERM
)

// process is a server that was started as a command, in a process group of its
// own so that what it starts ends with it.
type process struct {
	cmd     *exec.Cmd
	mark    string // a variable that its children inherit
	stdin   *os.File
	stdout  *os.File
	stderr  *os.File
	drained chan struct{}
	exited  chan struct{} // the process was waited for
	silent  chan struct{} // and what it wrote had time to be read
	once    sync.Once
	ended   chan struct{}
}

// markName is the variable by which children are found that left the process
// group, as a browser does that was started detached.
const markName = "MCPX_UPSTREAM_INSTANCE"

func startProcess(s Server, lookup func(string) (string, bool), errors io.Writer) (*process, error) {
	env := environment(s, lookup)
	command, err := findCommand(s.Command, s.Cwd, env["PATH"])
	if err != nil {
		return nil, err
	}
	p := &process{mark: markName + "=" + rand.Text(), drained: make(chan struct{}), exited: make(chan struct{}),
		silent: make(chan struct{}), ended: make(chan struct{})}
	p.cmd = &exec.Cmd{Path: command, Args: append([]string{s.Command}, s.Args...), Dir: s.Cwd,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		p.cmd.Env = append(p.cmd.Env, name+"="+env[name])
	}
	p.cmd.Env = append(p.cmd.Env, p.mark)
	if err := p.start(); err != nil {
		return nil, err
	}
	go p.drain(errors)
	go p.wait()
	return p, nil
}

// start makes the pipes itself: those of os/exec would keep Wait from
// returning while a grandchild holds one.
func (p *process) start() error {
	childIn, stdin, err := os.Pipe()
	if err != nil {
		return err
	}
	defer childIn.Close()
	stdout, childOut, err := os.Pipe()
	if err != nil {
		stdin.Close()
		return err
	}
	defer childOut.Close()
	stderr, childErr, err := os.Pipe()
	if err != nil {
		stdin.Close()
		stdout.Close()
		return err
	}
	defer childErr.Close()
	p.stdin, p.stdout, p.stderr = stdin, stdout, stderr
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = childIn, childOut, childErr
	if err := p.cmd.Start(); err != nil {
		p.closePipes()
		return err
	}
	return nil
}

func (p *process) closePipes() {
	p.stdin.Close()
	p.stdout.Close()
	p.stderr.Close()
}

// environment is what the server sees: a few of the daemon's variables and
// those that its configuration names.
func environment(s Server, lookup func(string) (string, bool)) map[string]string {
	env := map[string]string{}
	for _, name := range inherited() {
		if value, ok := lookup(name); ok {
			env[name] = value
		}
	}
	maps.Copy(env, s.Env)
	return env
}

// findCommand is exec.LookPath for the server's own PATH.
func findCommand(command, dir, path string) (string, error) {
	if strings.Contains(command, "/") {
		if !filepath.IsAbs(command) {
			command = filepath.Join(dir, command)
		}
		if err := executable(command); err != nil {
			return "", fmt.Errorf("command %s: %w", command, err)
		}
		return command, nil
	}
	for _, place := range filepath.SplitList(path) {
		candidate := filepath.Join(place, command)
		if filepath.IsAbs(candidate) && executable(candidate) == nil {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("command %s: there is none in PATH (%s)", command, path)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Unwrap(err) // without the path, which the caller names
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return errors.New("it is not an executable file")
	}
	return nil
}

// drain reads stderr for as long as anybody may write it: a full pipe would
// stop the server.
func (p *process) drain(to io.Writer) {
	defer close(p.drained)
	io.Copy(to, p.stderr) //nolint:errcheck // it ends when the pipe is closed, by either side
}

// wait reaps the process. What it leaves in its group is killed while its id
// still stands for the group.
func (p *process) wait() {
	pid := p.cmd.Process.Pid
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	syscall.Kill(-pid, syscall.SIGKILL) //nolint:errcheck // an empty group is what is wanted
	p.cmd.Wait()                        //nolint:errcheck // its state tells, see status
	killAll(marked(p.mark))
	close(p.exited)
	timer := time.NewTimer(reapTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ended:
	}
	close(p.silent)
}

func killAll(processes []proctree.Process) {
	for _, one := range processes {
		one.Signal(syscall.SIGKILL) //nolint:errcheck // it may be gone
	}
}

// end ends the process and all that it started, and returns when they are gone.
// It is asked first.
func (p *process) end() { p.endAfter(graceStdin, graceTerm) }

// kill does it without asking.
func (p *process) kill() { p.endAfter(0, 0) }

func (p *process) endAfter(stdin, term time.Duration) {
	p.once.Do(func() {
		defer close(p.ended)
		below, _ := proctree.Descendants(p.cmd.Process.Pid) //nolint:errcheck // the mark finds them, too
		p.stdin.Close()
		if !p.gone(stdin) {
			syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM) //nolint:errcheck // it may be gone
			if !p.gone(term) {
				syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // it may be gone
			}
		}
		<-p.exited
		killAll(append(below, marked(p.mark)...))
		p.stdout.Close()
		p.stderr.Close()
		<-p.drained
	})
	<-p.ended
}

func (p *process) gone(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// over reports whether the process ended, and waits for its last words, which
// may still be in the pipe.
func (p *process) over(within time.Duration) bool {
	if !p.gone(within) {
		return false
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.drained:
	case <-timer.C: // somebody else holds the pipe
	}
	return true
}

// status says how the process ended, or "" while it lives.
func (p *process) status() string {
	select {
	case <-p.exited:
		return p.cmd.ProcessState.String()
	default:
		return ""
	}
}

// marked finds the processes that carry the mark in their environment.
func marked(mark string) []proctree.Process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []proctree.Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err != nil || !slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool { return string(v) == mark }) {
			continue
		}
		if found, err := proctree.Find(pid); err == nil {
			out = append(out, found)
		}
	}
	return out
}

// stdio is the transport over a process's pipes.
type stdio struct {
	process *process
	flights *flights
	noise   io.Writer
	limit   int
}

// Connect implements mcp.Transport.
func (t stdio) Connect(context.Context) (mcp.Connection, error) {
	l := &lines{in: bufio.NewReaderSize(t.process.stdout, 64<<10), out: t.process.stdin, limit: t.limit,
		flights: t.flights, noise: t.noise}
	l.close = func() {
		t.process.stdin.Close()
		t.process.stdout.Close()
	}
	return &tap{l, t.flights}, nil
}
