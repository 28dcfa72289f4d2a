package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"mcpx/api/problem"
	"mcpx/orchestrator/run"
)

// printer shows a run's events as they happen.
type printer interface {
	event(run.Event) error
	// end shows the whole result.
	end(run.Result) error
}

func (a *app) printer(w *wishes) printer {
	switch {
	case w.json:
		return &jsonPrinter{a}
	case w.stream:
		return &framePrinter{json.NewEncoder(a.out)}
	}
	p := &textPrinter{streams: &a.streams, stdout: a.out, stderr: a.err, quiet: w.quiet, chosen: w.cwd != "" || w.cwdPolicy != ""}
	if a.person && !w.quiet {
		p.wait = newWaiting(a.err)
	}
	return p
}

// jsonPrinter prints the structured result alone.
type jsonPrinter struct{ app *app }

func (p *jsonPrinter) event(run.Event) error  { return nil }
func (p *jsonPrinter) end(r run.Result) error { return p.app.document(r) }

// framePrinter prints each event as a line.
type framePrinter struct{ out *json.Encoder }

func (p *framePrinter) event(e run.Event) error { return p.out.Encode(e) }
func (p *framePrinter) end(run.Result) error    { return nil }

// textPrinter passes the script's output on, byte for byte, and tells people
// the rest.
type textPrinter struct {
	*streams
	stdout, stderr io.Writer
	quiet          bool
	wait           *waiting
	// chosen: the caller named a directory.
	chosen bool
	// held is what is worth saying only if the script fails.
	held string
}

// codeNotMounted marks the log that says that the script does not see the
// caller's directory.
const codeNotMounted = "cwd_not_mounted"

func (p *textPrinter) event(e run.Event) error {
	if e.Type != run.EventQueued {
		p.wait.over()
	}
	switch body := e.Payload.(type) {
	case *run.OutputFrame:
		return p.output(e.Type, body)
	case *run.QueuedFrame:
		p.wait.tell(fmt.Sprintf("waiting for a place, %d in line", body.Position))
	case *run.Log:
		p.log(body)
	case *run.Artifact:
		p.tell("artifact %s, %s: mcpx artifacts get %s", body.Name, size(body.Size), body.ID)
	case *run.Skip:
		p.tell("outbox: %s was not taken: %s", body.Name, body.Reason)
	}
	return nil
}

func (p *textPrinter) output(kind string, o *run.OutputFrame) error {
	out, name := p.stdout, "stdout"
	if kind == run.EventStderr {
		out, name = p.stderr, "stderr"
	}
	if _, err := out.Write(o.Bytes()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (p *textPrinter) log(l *run.Log) {
	switch l.Level {
	case "warn":
		if l.Code == codeNotMounted && !p.chosen {
			p.held = l.Message // it concerns few of those who never named one
			return
		}
		p.tell("warning: %s", l.Message)
	case "error":
		p.say("error: %s", l.Message)
	}
}

// tell is for what --quiet keeps away.
func (p *textPrinter) tell(format string, args ...any) {
	if !p.quiet {
		p.say(format, args...)
	}
}

// end says what the exit code alone would leave open. A script that exits with
// an error has said itself what is wrong.
func (p *textPrinter) end(r run.Result) error {
	p.wait.over()
	if p.held != "" && r.State == run.Exited && problem.ExitCode(r) != 0 {
		p.tell("note: %s", p.held)
	}
	if r.Truncated {
		p.say("the script wrote more than is kept: %d bytes are missing", r.DroppedBytes)
	}
	if r.Error != nil && r.State != run.Exited {
		p.say("%s", sentence(r.Error))
	}
	return p.value(r)
}

// value shows what a script returned, if it wrote nothing: a person who runs a
// snippet that returns its answer wants to see it.
func (p *textPrinter) value(r run.Result) error {
	if r.Result == nil || r.StdoutBytes > 0 {
		return nil
	}
	if _, err := fmt.Fprintf(p.stdout, "%s\n", r.Result); err != nil {
		return fmt.Errorf("stdout: %w", err)
	}
	return nil
}

// waiting tells a person what a command is waiting for, when it takes long. A
// nil waiting tells nothing.
type waiting struct {
	out io.Writer

	mu    sync.Mutex
	text  string
	shown bool
	done  bool
	timer *time.Timer
}

const longWait = 500 * time.Millisecond

func newWaiting(out io.Writer) *waiting {
	w := &waiting{out: out, text: "preparing the container"}
	w.timer = time.AfterFunc(longWait, w.show)
	return w
}

func (w *waiting) show() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.shown = true
		w.draw()
	}
}

func (w *waiting) draw() {
	fmt.Fprintf(w.out, "\r\x1b[Kmcpx: %s …", w.text) //nolint:errcheck // only decoration
}

// tell changes what is waited for.
func (w *waiting) tell(text string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = text
	if w.shown && !w.done {
		w.draw()
	}
}

// over takes the line away.
func (w *waiting) over() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return
	}
	w.done = true
	w.timer.Stop()
	if w.shown {
		fmt.Fprint(w.out, "\r\x1b[K") //nolint:errcheck // only decoration
	}
}
