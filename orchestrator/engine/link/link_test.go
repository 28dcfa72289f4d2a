package link_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
	"mcpx/orchestrator/frame"
)

func TestOneProtocol(t *testing.T) {
	require.Equal(t, engine.InitProtocol, frame.Protocol)
}

func TestGreeting(t *testing.T) {
	for name, c := range map[string]struct {
		send func(*peer)
		is   func(error) bool
	}{
		"gone":           {func(*peer) {}, errdefs.IsUnavailable},
		"no frame":       {func(p *peer) { p.wire('H', 'T', 'T', 'P', '/', '1') }, errdefs.IsUnavailable},
		"other frame":    {func(p *peer) { p.raw(frame.Started, "") }, errdefs.IsFailedPrecondition},
		"no JSON":        {func(p *peer) { p.raw(frame.Hello, "hello") }, errdefs.IsFailedPrecondition},
		"other protocol": {func(p *peer) { p.raw(frame.Hello, `{"protocol":"2","version":"x"}`) }, errdefs.IsFailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.send(&peer{t: t, conn: theirs, out: frame.NewWriter(theirs)})
				theirs.Close()
			}()
			_, err := link.New(t.Context(), ours, link.Config{})
			require.True(t, c.is(err), "%v", err)
			_, err = ours.Write([]byte("x"))
			require.ErrorIs(t, err, io.ErrClosedPipe, "the connection is closed")
			<-done
		})
	}
}

func TestGreetingEndsWithItsContext(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := link.New(ctx, ours, link.Config{})
	require.ErrorIs(t, err, why)
}

func TestRunCarriesEverything(t *testing.T) {
	var got frame.JobMessage
	var input bytes.Buffer
	l := connect(t, link.Config{MaxEntries: 5}, func(p *peer) {
		got = p.job()
		p.raw(frame.Stdout, "out1")
		p.raw(frame.Stderr, "err")
		for input.Len() < 300_000 {
			part := p.expect(frame.Stdin)
			input.Write(part)
			p.out.WriteCredit(len(part)) //nolint:errcheck // the next frame tells
		}
		p.expect(frame.StdinEOF)
		p.raw(frame.Stdout, "\x00out2")
		p.exit(`{"code":-1,"signal":"SIGRTMIN+2","oomKills":2}`)
	})
	require.Equal(t, "127.0.0.1:7717", l.Endpoint())
	require.Equal(t, "test", l.Version())
	require.Empty(t, l.Problems())
	var stdout, stderr bytes.Buffer
	starts := 0
	sent := strings.Repeat("abc", 100_000)
	job := engine.Job{Argv: []string{"sh", "\xff<&"}, Env: []string{"A=\xfe", "B="}, Cwd: "/\xfd"}
	exit, err := l.Run(t.Context(), job, engine.IO{
		Stdin: strings.NewReader(sent), Stdout: &stdout, Stderr: &stderr, Started: func() { starts++ },
	})
	require.NoError(t, err)
	require.Equal(t, engine.Exit{Code: -1, Signal: "SIGRTMIN+2", OOMKilled: true}, exit)
	require.Equal(t, "out1\x00out2", stdout.String())
	require.Equal(t, "err", stderr.String())
	require.True(t, sent == input.String())
	require.Equal(t, 1, starts)
	require.Equal(t, frame.JobMessage{
		Argv: [][]byte{[]byte("sh"), []byte("\xff<&")}, Env: [][]byte{[]byte("A=\xfe"), []byte("B=")}, Cwd: []byte("/\xfd"),
		Stdin: true, MaxEntries: 5,
	}, got)
	kills, known := l.OOMKills()
	require.Equal(t, 2, kills)
	require.True(t, known)
}

func TestOrderOfCallsIsKept(t *testing.T) {
	l := connect(t, link.Config{}, func(p *peer) {
		p.job()
		p.exit(exitZero)
		p.drain()
	})
	require.True(t, errdefs.IsUnavailable(l.Collect(t.Context(), &sink{})), "before Run")
	_, err := l.Run(t.Context(), shJob(), engine.IO{})
	require.NoError(t, err)
	_, err = l.Run(t.Context(), shJob(), engine.IO{})
	require.True(t, errdefs.IsFailedPrecondition(err), "twice")
	require.NoError(t, l.Close())
	require.NoError(t, l.Close(), "idempotent")
	require.Error(t, l.Collect(t.Context(), &sink{}))
}

func TestJobOfAnEndedContextIsNotBegun(t *testing.T) {
	l := connect(t, link.Config{}, func(p *peer) { p.drain() })
	why := errors.New("too late")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := l.Run(ctx, shJob(), engine.IO{})
	require.ErrorIs(t, err, why)
}

func TestJobThatIsTooLargeIsRefused(t *testing.T) {
	l := connect(t, link.Config{}, func(p *peer) { p.drain() })
	_, err := l.Run(t.Context(), engine.Job{Argv: []string{strings.Repeat("x", frame.MaxControl)}}, engine.IO{})
	require.True(t, errdefs.IsInvalidArgument(err), "%v", err)
	require.NotErrorIs(t, err, link.ErrLost)
}

func TestInitThatLeavesTheProtocolIsLost(t *testing.T) {
	for name, play := range map[string]func(*peer){
		"gone at once":           func(p *peer) { p.expect(frame.Job) },
		"gone under the script":  func(p *peer) { p.job() },
		"cut in a frame":         func(p *peer) { p.job(); p.wire(byte(frame.Stdout), 0, 0, 0, 9, 'x') },
		"unknown frame":          func(p *peer) { p.job(); p.wire(99, 0, 0, 0, 0) },
		"too large":              func(p *peer) { p.job(); p.wire(byte(frame.Stdout), 0xff, 0xff, 0xff, 0xff) },
		"output before start":    func(p *peer) { p.expect(frame.Job); p.raw(frame.Stdout, "x") },
		"started twice":          func(p *peer) { p.job(); p.raw(frame.Started, "") },
		"hello again":            func(p *peer) { p.job(); p.raw(frame.Hello, hello) },
		"daemon's frame":         func(p *peer) { p.job(); p.raw(frame.Kill, "") },
		"file under the script":  func(p *peer) { p.job(); p.raw(frame.File, `{"name":"YQ==","mode":0,"size":0}`) },
		"credit for nothing":     func(p *peer) { p.job(); p.out.WriteCredit(1) },         //nolint:errcheck
		"credit beyond an int32": func(p *peer) { p.job(); p.out.WriteCredit(1<<32 - 1) }, //nolint:errcheck
		"exit is no JSON":        func(p *peer) { p.job(); p.exit("0") },
		"exit has more members":  func(p *peer) { p.job(); p.exit(`{"code":0,"oomKills":0,"x":1}`) },
		"exit before start":      func(p *peer) { p.expect(frame.Job); p.exit(exitZero) },
		"code too high":          func(p *peer) { p.job(); p.exit(`{"code":256,"oomKills":0}`) },
		"code below":             func(p *peer) { p.job(); p.exit(`{"code":-1,"oomKills":0}`) },
		"code and signal":        func(p *peer) { p.job(); p.exit(`{"code":1,"signal":"SIGKILL","oomKills":0}`) },
		"unknown signal":         func(p *peer) { p.job(); p.exit(`{"code":-1,"signal":"SIGNOPE","oomKills":0}`) },
		"kills below unknown":    func(p *peer) { p.job(); p.exit(`{"code":0,"oomKills":-2}`) },
		"start error when started": func(p *peer) {
			p.job()
			p.exit(`{"code":-1,"oomKills":-1,"startError":"x","startKind":"other"}`)
		},
		"start error with code": func(p *peer) {
			p.expect(frame.Job)
			p.exit(`{"code":1,"oomKills":-1,"startError":"x","startKind":"other"}`)
		},
		"start error without text": func(p *peer) { p.expect(frame.Job); p.exit(`{"code":-1,"oomKills":-1,"startKind":"other"}`) },
		"start error of no kind":   func(p *peer) { p.expect(frame.Job); p.exit(`{"code":-1,"oomKills":-1,"startError":"x"}`) },
		"start error of new kind": func(p *peer) {
			p.expect(frame.Job)
			p.exit(`{"code":-1,"oomKills":-1,"startError":"x","startKind":"y"}`)
		},
		"start error too long": func(p *peer) {
			p.expect(frame.Job)
			p.exit(`{"code":-1,"oomKills":-1,"startError":"` + strings.Repeat("x", 5000) + `","startKind":"other"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := connect(t, link.Config{}, play)
			_, err := l.Run(t.Context(), shJob(), engine.IO{})
			require.ErrorIs(t, err, link.ErrLost)
			require.True(t, errdefs.IsUnavailable(err))
			_, known := l.OOMKills()
			require.False(t, known)
			require.Error(t, l.Collect(t.Context(), &sink{}))
		})
	}
}

func TestStartErrorIsAnExit(t *testing.T) {
	l := connect(t, link.Config{}, func(p *peer) {
		p.expect(frame.Job)
		p.exit(`{"code":-1,"oomKills":-1,"startError":"no sh","startKind":"not_found"}`)
	})
	exit, err := l.Run(t.Context(), shJob(), engine.IO{Started: func() { t.Error("it has not") }})
	require.NoError(t, err)
	require.Equal(t, engine.Exit{Code: -1, StartError: "no sh"}, exit)
	_, known := l.OOMKills()
	require.False(t, known)
}

func TestCloseEndsARun(t *testing.T) {
	var l *link.Link
	l = connect(t, link.Config{}, func(p *peer) {
		p.job()
		p.drain()
	})
	_, err := l.Run(t.Context(), shJob(), engine.IO{Started: func() { l.Close() }})
	require.ErrorIs(t, err, link.ErrLost)
}
