package link_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
	"mcpx/orchestrator/frame"
)

// stopped takes the stop frame and yields its grace.
func (p *peer) stopped() time.Duration {
	var m frame.StopMessage
	if err := json.Unmarshal(p.expect(frame.Stop), &m); err != nil {
		p.t.Error(err)
	}
	return m.Grace()
}

// runStopped runs a job whose context ends when it has started.
func runStopped(t *testing.T, l *link.Link, grace time.Duration, stdio engine.IO) (engine.Exit, time.Duration, error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdio.Started = cancel
	job := shJob()
	job.Grace = grace
	began := time.Now()
	exit, err := l.Run(ctx, job, stdio)
	return exit, time.Since(began), err
}

func TestEndedContextStopsTheScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var grace time.Duration
		l := connect(t, link.Config{}, func(p *peer) {
			p.job()
			grace = p.stopped()
			time.Sleep(6 * time.Second)
			p.raw(frame.Stdout, "bye")
			p.exit(`{"code":-1,"signal":"SIGTERM","oomKills":0}`)
			p.expect(frame.Collect)
			time.Sleep(time.Hour) // the deadlines of the stop are off
			p.raw(frame.Collected, "")
		})
		var out strings.Builder
		exit, _, err := runStopped(t, l, 5*time.Second, engine.IO{Stdout: &out})
		require.NoError(t, err)
		require.Equal(t, engine.Exit{Code: -1, Signal: "SIGTERM"}, exit)
		require.Equal(t, "bye", out.String())
		require.Equal(t, 5*time.Second, grace)
		require.NoError(t, l.Collect(t.Context(), &sink{}))
	})
}

func TestInitThatDoesNotReportIsLostInTime(t *testing.T) {
	for name, play := range map[string]func(*peer){
		"silent": func(p *peer) { p.drain() },
		"deaf":   func(p *peer) { <-p.t.Context().Done() },
		"endless output": func(p *peer) {
			go p.drain()
			for p.out.Write(frame.Stdout, make([]byte, frame.MaxData)) == nil {
				time.Sleep(time.Millisecond)
			}
		},
		"trickle": func(p *peer) {
			go p.drain()
			for p.out.Write(frame.Stdout, []byte("x")) == nil {
				time.Sleep(time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := connect(t, link.Config{Margin: 3 * time.Second}, func(p *peer) {
					p.job()
					play(p)
				})
				_, took, err := runStopped(t, l, 5*time.Second, engine.IO{})
				require.ErrorIs(t, err, link.ErrLost)
				require.GreaterOrEqual(t, took, 8*time.Second)
				require.LessOrEqual(t, took, 11*time.Second)
				l.Close()
			})
		})
	}
}

// slowly is a writer that takes its time.
type slowly time.Duration

func (s slowly) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(s))
	return len(p), nil
}

func TestSlowWriterIsNotInitsFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := connect(t, link.Config{}, func(p *peer) {
			p.job()
			go p.drain()
			for range 5 {
				p.raw(frame.Stdout, "x")
			}
			p.exit(exitZero)
		})
		_, took, err := runStopped(t, l, time.Second, engine.IO{Stdout: slowly(10 * time.Second)})
		require.NoError(t, err)
		require.Equal(t, 50*time.Second, took)
	})
}

// failing is a writer with an error.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestWriterThatFailsStopsTheScript(t *testing.T) {
	full := errors.New("the disk is full")
	for name, stdio := range map[string]engine.IO{
		"stdout": {Stdout: failing{full}}, "stderr": {Stderr: failing{full}},
		"stdin": {Stdin: io.MultiReader(strings.NewReader("x"), readerFunc(func([]byte) (int, error) { return 0, full }))},
	} {
		t.Run(name, func(t *testing.T) {
			l := connect(t, link.Config{}, func(p *peer) {
				p.job()
				switch name {
				case "stdin":
					p.expect(frame.Stdin)
				case "stdout":
					p.raw(frame.Stdout, "x")
				default:
					p.raw(frame.Stderr, "x")
				}
				p.stopped()
				for range 100 { // all of it is drained
					p.raw(frame.Stdout, "more")
					p.raw(frame.Stderr, "more")
				}
				p.exit(`{"code":7,"oomKills":0}`)
				p.expect(frame.Collect)
				p.raw(frame.Collected, "")
			})
			exit, err := l.Run(t.Context(), shJob(), stdio)
			require.ErrorIs(t, err, full)
			require.NotErrorIs(t, err, link.ErrLost)
			require.Equal(t, 7, exit.Code)
			require.NoError(t, l.Collect(t.Context(), &sink{}))
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestShortWriteIsAnError(t *testing.T) {
	l := connect(t, link.Config{}, func(p *peer) {
		p.job()
		p.raw(frame.Stdout, "four")
		p.stopped()
		p.exit(exitZero)
	})
	_, err := l.Run(t.Context(), shJob(), engine.IO{Stdout: writerFunc(func(p []byte) (int, error) { return 1, nil })})
	require.ErrorIs(t, err, io.ErrShortWrite)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestStdinKeepsToItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := 0
		l := connect(t, link.Config{}, func(p *peer) {
			p.job()
			for got < frame.StdinWindow {
				got += len(p.expect(frame.Stdin))
			}
			synctest.Wait()
			p.out.WriteCredit(10) //nolint:errcheck // the next frame tells
			got += len(p.expect(frame.Stdin))
			p.raw(frame.StdinClosed, "")
			p.exit(exitZero)
		})
		_, err := l.Run(t.Context(), shJob(), engine.IO{Stdin: zeros{}})
		require.NoError(t, err)
		require.Equal(t, frame.StdinWindow+10, got)
	})
}

func TestStdinThatHangsDoesNotHoldTheEndUp(t *testing.T) {
	l := connect(t, link.Config{}, func(p *peer) {
		p.job()
		p.exit(exitZero)
		p.drain()
	})
	from, to := io.Pipe()
	reading := make(chan struct{})
	hanging := readerFunc(func(p []byte) (int, error) {
		close(reading)
		return from.Read(p)
	})
	_, err := l.Run(t.Context(), shJob(), engine.IO{Stdin: hanging, Started: func() { <-reading }})
	require.NoError(t, err)
	to.Close() // goleak sees that its goroutine ends now
}
