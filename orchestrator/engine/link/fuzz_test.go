package link_test

import (
	"bytes"
	"context"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
	"mcpx/orchestrator/frame"
)

// FuzzInit: whatever an init sends, Run and Collect return, with sense or an
// error; nothing is committed that did not come whole.
func FuzzInit(f *testing.F) {
	for _, script := range [][]any{
		{frame.Started, "", frame.Stdout, "x", frame.Exit, exitZero, frame.File, `{"name":"YQ==","mode":420,"size":2}`, frame.Data, "hi", frame.FileEnd, "", frame.Collected, ""},
		{frame.Exit, `{"code":-1,"oomKills":-1,"startError":"x","startKind":"other"}`, frame.Skip, `{"name":"YQ==","reason":"x"}`},
		{frame.Started, "", frame.Credit, "\x00\x00\x00\x01", frame.StdinClosed, "", frame.Exit, `{"code":-1,"signal":"SIGKILL","oomKills":3}`},
	} {
		var wire bytes.Buffer
		w := frame.NewWriter(&wire)
		for i := 0; i < len(script); i += 2 {
			require.NoError(f, w.Write(script[i].(frame.Type), []byte(script[i+1].(string))))
		}
		f.Add(wire.Bytes())
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		synctest.Test(t, func(t *testing.T) {
			l := connect(t, link.Config{MaxEntries: 3}, func(p *peer) {
				go p.wire(wire...)
				p.drain()
			})
			// Silence ends by the stop that the context brings.
			stdio := engine.IO{Stdin: bytes.NewReader(make([]byte, 1<<20))}
			exit, err := l.Run(timeout(t, time.Second), shJob(), stdio)
			if err == nil {
				require.True(t, exit.Code >= 0 && exit.Code <= 255 || frame.KnownSignal(exit.Signal) || exit.StartError != "")
				s := &tally{}
				err = l.Collect(timeout(t, time.Second), s)
				require.Equal(t, s.files, s.ended)
				require.LessOrEqual(t, s.files+s.skips, 4)
			}
			l.Close()
		})
	})
}

func timeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// tally counts, and sees that what is committed has its size.
type tally struct {
	files, ended, skips int
}

func (c *tally) File(_ string, _ fs.FileMode, size int64) (engine.OutboxFile, error) {
	c.files++
	return &tallied{c, size}, nil
}

func (c *tally) Skip(string, string) error {
	c.skips++
	return nil
}

type tallied struct {
	*tally
	left int64
}

func (f *tallied) Write(p []byte) (int, error) {
	f.left -= int64(len(p))
	return len(p), nil
}

func (f *tallied) Commit() error {
	f.ended++
	if f.left != 0 {
		panic("a file was committed that is not whole")
	}
	return nil
}

func (f *tallied) Abort() { f.ended++ }
