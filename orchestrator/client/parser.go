package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime/debug"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"mcpx/orchestrator/run"
)

// Parser does what Launch does in processes of its own. Scripts are a
// stranger's, and a parser of TypeScript can be held up for ever by a hundred
// bytes, or made to use up the stack, which no Go program survives. A process
// can be ended.
//
// The processes are kept for the next script, so that one costs no more than
// parsing it. All methods are safe for concurrent use.
type Parser struct {
	config ParserConfig
	places chan struct{}
	idle   chan *parserProcess
}

// ParserConfig says how a Parser works.
type ParserConfig struct {
	// Command is a program that calls ServeParser on its standard input and
	// output, with its arguments.
	Command []string
	// Timeout is how long one script may take; 5 s when 0.
	Timeout time.Duration
	// Processes is how many there are at most; 2 when 0.
	Processes int
}

// NewParser makes a Parser. Processes are started when they are needed.
func NewParser(c ParserConfig) *Parser {
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Processes == 0 {
		c.Processes = 2
	}
	return &Parser{config: c, places: make(chan struct{}, c.Processes), idle: make(chan *parserProcess, c.Processes)}
}

// Close ends the processes that are idle. No Launch may be under way.
func (p *Parser) Close() error {
	for {
		select {
		case process := <-p.idle:
			process.end()
		default:
			return nil
		}
	}
}

// Launch is the function Launch. A script that takes too long or too much is
// an error of the *run.Error kind.
func (p *Parser) Launch(ctx context.Context, r LaunchRequest) (Launched, bool, error) {
	if lang, _ := Lang(r.Kind); lang != TypeScript {
		return Launch(r)
	}
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		return Launched{}, false, context.Cause(ctx)
	}
	process, err := p.take()
	if err != nil {
		return Launched{}, false, err
	}
	answer, err := p.ask(ctx, process, r)
	if err != nil {
		process.end()
		if ctx.Err() != nil {
			return Launched{}, false, context.Cause(ctx)
		}
		return Launched{}, false, &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument, Field: "source",
			Message: fmt.Sprintf("the script can't be parsed within %s and %d MiB", p.config.Timeout, parserBytes>>20),
			Hint:    "nest less deeply, and move data out of the script"}
	}
	p.idle <- process // as many fit as there are places
	return answer.Launched, answer.OK, answer.err()
}

func (p *Parser) take() (*parserProcess, error) {
	select {
	case process := <-p.idle:
		return process, nil
	default:
		return startParser(p.config.Command)
	}
}

// ask waits for the answer, or ends the process.
func (p *Parser) ask(ctx context.Context, process *parserProcess, r LaunchRequest) (parserAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, process.kill)
	var answer parserAnswer
	err := process.to.Encode(r)
	if err == nil {
		err = process.from.Decode(&answer)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx) // killed at the last moment
	}
	return answer, err
}

// parserProcess is one running process.
type parserProcess struct {
	cmd  *exec.Cmd
	pipe io.Closer
	to   *json.Encoder
	from *json.Decoder
}

func startParser(command []string) (*parserProcess, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = []string{"GOMAXPROCS=1"} // and none of the daemon's secrets
	cmd.Dir = "/"
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the parser: %w", err)
	}
	return &parserProcess{cmd: cmd, pipe: in, to: json.NewEncoder(in), from: json.NewDecoder(out)}, nil
}

func (p *parserProcess) kill() { p.cmd.Process.Kill() } //nolint:errcheck // then it has ended

func (p *parserProcess) end() {
	p.pipe.Close()
	p.kill()
	p.cmd.Wait() //nolint:errcheck // it was killed
}

// parserAnswer is what a process says of a script.
type parserAnswer struct {
	Launched Launched
	OK       bool
	Refused  *refusal
}

// refusal is a *run.Error on its way.
type refusal struct{ Code, Message, Field, Hint string }

func (a parserAnswer) err() error {
	if a.Refused == nil {
		return nil
	}
	return &run.Error{Code: a.Refused.Code, Message: a.Refused.Message, Field: a.Refused.Field, Hint: a.Refused.Hint, Class: errdefs.ErrInvalidArgument}
}

// Bounds of a process. What goes beyond ends it.
const (
	parserBytes   = 1 << 30
	parserStack   = 512 << 20
	parserSeconds = 10 // of processor time for one script, should nobody be left to end it
)

// ServeParser answers a Parser until its input ends. It bounds the process
// that it is called in.
func ServeParser(in io.Reader, out io.Writer) error {
	debug.SetMaxStack(parserStack)
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: parserBytes, Max: parserBytes}); err != nil {
		return fmt.Errorf("bound the parser's memory: %w", err)
	}
	from, to := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r LaunchRequest
		if err := from.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := moreTime(); err != nil {
			return err
		}
		var answer parserAnswer
		var err error
		answer.Launched, answer.OK, err = Launch(r)
		if refused, ok := errors.AsType[*run.Error](err); ok {
			answer.Refused = &refusal{refused.Code, refused.Message, refused.Field, refused.Hint}
		} else if err != nil {
			return err
		}
		if err := to.Encode(answer); err != nil {
			return err
		}
	}
}

// moreTime lets the process run on for one script.
func moreTime() error {
	var used unix.Rusage
	var limit unix.Rlimit
	if err := errors.Join(unix.Getrusage(unix.RUSAGE_SELF, &used), unix.Getrlimit(unix.RLIMIT_CPU, &limit)); err != nil {
		return fmt.Errorf("bound the parser's time: %w", err)
	}
	limit.Cur = min(uint64(used.Utime.Sec+used.Stime.Sec)+parserSeconds, limit.Max)
	if err := unix.Setrlimit(unix.RLIMIT_CPU, &limit); err != nil {
		return fmt.Errorf("bound the parser's time: %w", err)
	}
	return nil
}
