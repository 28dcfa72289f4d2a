package supervisor

import (
	"errors"
	"os"
	"sync"

	"mcpx/orchestrator/frame"
)

// input holds what the daemon sent for the script's standard input until the
// script reads it. It is no more than the window, so add never waits.
type input struct {
	pipe *os.File
	out  *frame.Writer
	done chan struct{}

	mu      sync.Mutex
	changed *sync.Cond
	held    []byte
	taken   int  // of it, which has not been given back
	ended   bool // no more will come
	closed  bool // no more is wanted
}

// newInput is ready for add; run has to follow.
func newInput(pipe *os.File, out *frame.Writer, expected bool) *input {
	in := &input{pipe: pipe, out: out, ended: !expected, done: make(chan struct{})}
	in.changed = sync.NewCond(&in.mu)
	return in
}

// add takes bytes from the daemon.
func (in *input) add(p []byte) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil // it was under way
	}
	if in.ended {
		return errors.New("stdin goes on after its end")
	}
	if len(in.held)+in.taken+len(p) > frame.StdinWindow {
		return errors.New("stdin is more than the window")
	}
	in.held = append(in.held, p...)
	in.changed.Signal()
	return nil
}

func (in *input) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ended = true
	in.changed.Signal()
}

// close drops what the script has not read.
func (in *input) close() {
	in.drop()
	in.pipe.Close() //nolint:errcheck // this ends a write that waits
	<-in.done
}

func (in *input) drop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed, in.held = true, nil
	in.changed.Signal()
}

// run feeds the script.
func (in *input) run() {
	defer close(in.done)
	defer in.pipe.Close()
	for {
		p := in.next()
		if p == nil {
			return
		}
		if _, err := in.pipe.Write(p); err != nil {
			in.refuse()
			return
		}
		in.giveBack(len(p))
	}
}

// next waits for bytes; nil when there will be none.
func (in *input) next() []byte {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.held) == 0 && !in.ended && !in.closed {
		in.changed.Wait()
	}
	if len(in.held) == 0 {
		return nil
	}
	p := in.held
	in.held, in.taken = nil, len(p)
	return p
}

// refuse tells the daemon that the script reads no more, which is its right.
func (in *input) refuse() {
	in.mu.Lock()
	told := in.closed
	in.mu.Unlock()
	in.drop()
	if !told {
		in.out.Write(frame.StdinClosed, nil) //nolint:errcheck // the listener sees that the connection is gone
	}
}

// giveBack opens the window again.
func (in *input) giveBack(n int) {
	in.mu.Lock()
	in.taken = 0
	in.mu.Unlock()
	in.out.WriteCredit(n) //nolint:errcheck // as above
}
