package link

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"mcpx/orchestrator/frame"
)

// feed sends a script's standard input, as far ahead of the script as the
// window allows: init never has to wait with it, and so always hears us.
type feed struct {
	out  *frame.Writer
	from io.Reader
	fail func(error)

	mu      sync.Mutex
	changed *sync.Cond
	window  int
	stopped bool
	reading bool // in from.Read, which can't be interrupted
	done    bool
	cut     bool // a frame could not be written
}

func startFeed(out *frame.Writer, from io.Reader, fail func(error)) *feed {
	f := &feed{out: out, from: from, fail: fail, window: frame.StdinWindow, done: from == nil}
	f.changed = sync.NewCond(&f.mu)
	if from != nil {
		go f.run()
	}
	return f
}

func (f *feed) run() {
	defer f.set(func() { f.done = true })
	buf := make([]byte, frame.MaxData)
	for {
		n, err := f.read(buf)
		if !f.send(buf[:n]) {
			return
		}
		if errors.Is(err, io.EOF) {
			f.write(frame.StdinEOF, nil)
			return
		}
		if err != nil {
			f.fail(fmt.Errorf("stdin for the script: %w", err))
			return
		}
	}
}

func (f *feed) read(buf []byte) (int, error) {
	f.set(func() { f.reading = true })
	defer f.set(func() { f.reading = false })
	return f.from.Read(buf)
}

// send sends p as the window opens; false when no more is wanted.
func (f *feed) send(p []byte) bool {
	for len(p) > 0 {
		n := f.reserve(len(p))
		if n == 0 || !f.write(frame.Stdin, p[:n]) {
			return false
		}
		p = p[n:]
	}
	return !f.isStopped()
}

func (f *feed) write(t frame.Type, p []byte) bool {
	err := f.out.Write(t, p)
	if err != nil {
		f.set(func() { f.cut = true })
	}
	return err == nil
}

// reserve waits for room in the window; 0 when no more is wanted.
func (f *feed) reserve(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.window == 0 && !f.stopped {
		f.changed.Wait()
	}
	if f.stopped {
		return 0
	}
	n = min(n, f.window)
	f.window -= n
	return n
}

func (f *feed) isStopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped
}

// credit opens the window by what the script has taken.
func (f *feed) credit(n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > frame.StdinWindow-f.window {
		return fmt.Errorf("credit for %d bytes of stdin, more than were sent", n)
	}
	f.window += n
	f.changed.Broadcast()
	return nil
}

// stop lets the feeding end when it can.
func (f *feed) stop() {
	f.set(func() { f.stopped = true })
}

// close stops, and waits unless the reader given to us hangs. It tells whether
// a frame was cut.
func (f *feed) close() (cut bool) {
	f.stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.done && !f.reading {
		f.changed.Wait()
	}
	return f.cut
}

func (f *feed) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.changed.Broadcast()
}
