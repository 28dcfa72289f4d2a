package mcp_test

import (
	"context"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"mcpx/api/mcp"
	"mcpx/orchestrator/run"
)

// pipes are the two ends of a connection over stdio.
type pipes struct {
	client   *sdk.IOTransport
	in       io.ReadCloser
	out      io.WriteCloser
	hangUp   func()
	finished chan error
}

func (w *world) overStdio(ctx context.Context, server *mcp.Server) *pipes {
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	p := &pipes{client: &sdk.IOTransport{Reader: fromServer, Writer: toServer}, in: in, out: out, finished: make(chan error, 1)}
	p.hangUp = func() {
		toServer.Close()
		fromServer.Close()
	}
	go func() { p.finished <- server.Stdio(ctx, in, out, run.Caller{Principal: "local", SharedFs: true}) }()
	return p
}

func TestStdioSpeaksEveryRevision(t *testing.T) {
	w := newWorld(t)
	config := w.config
	config.Session, config.Cwd = "mine", "/home/me"
	server := mcp.New(config)
	for _, revision := range revisions {
		p := w.overStdio(t.Context(), server)
		session, err := sdk.NewClient(&sdk.Implementation{Name: "t", Version: "1"}, nil).
			Connect(t.Context(), p.client, &sdk.ClientSessionOptions{ProtocolVersion: revision})
		require.NoError(t, err)
		require.Contains(t, words(t, call(t, session, "mcpx_exec", object{"source": "x"})), "hello")
		last := len(w.runner.seen) - 1
		require.Equal(t, "mine", w.runner.seen[last].Options.Session)
		require.Equal(t, "/home/me", w.runner.seen[last].Options.Cwd)
		require.True(t, w.runner.by[last].SharedFs)
		require.NoError(t, session.Close())
		p.hangUp()
		require.NoError(t, receive(t, p.finished))
	}
	server.Close()
}

// Few of those who never named a directory care that it is not mounted.
func TestUnchosenDirectoryIsNotComplainedOf(t *testing.T) {
	w := newWorld(t)
	for source, code := range map[string]int{"fine": 0, "fails": 1} {
		w.runner.does[source] = func(_ context.Context, emit emitter) {
			emit(run.EventLog, &run.Log{Level: "warn", Code: "cwd_not_mounted", Message: "not shown"})
			exits(emit, code)
		}
	}
	session := w.connect("2025-11-25")
	require.NotContains(t, words(t, call(t, session, "mcpx_exec", object{"source": "fine"})), "not shown")
	require.Contains(t, words(t, call(t, session, "mcpx_exec", object{"source": "fails"})), "not shown")
	require.Contains(t, words(t, call(t, session, "mcpx_exec", object{"source": "fine", "options": object{"cwd": "/x"}})), "not shown")
}

func TestStdioClientWhoGoesEndsItsRuns(t *testing.T) {
	w := newWorld(t)
	w.runner.does["waits"] = w.runner.untilEnded
	for name, end := range map[string]func(p *pipes, stop context.CancelFunc){
		"client goes": func(p *pipes, _ context.CancelFunc) { p.hangUp() },
		"we go":       func(_ *pipes, stop context.CancelFunc) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			server := mcp.New(w.config)
			p := w.overStdio(ctx, server)
			session, err := sdk.NewClient(&sdk.Implementation{Name: "t", Version: "1"}, nil).Connect(t.Context(), p.client, nil)
			require.NoError(t, err)
			go session.CallTool(t.Context(), &sdk.CallToolParams{Name: "mcpx_exec", Arguments: object{"source": "waits"}}) //nolint:errcheck // it is given up
			require.Eventually(t, func() bool { return w.jobs.Stats().Running == 1 }, 10*time.Second, time.Millisecond)
			end(p, stop)
			require.Error(t, receive(t, w.runner.causes))
			require.NoError(t, receive(t, p.finished))
			p.hangUp()
			session.Close() //nolint:errcheck // it is gone
			server.Close()
		})
	}
}

// Clients put the instructions into every conversation. Counted as tokenizers
// split: words of more than six letters count double, every other sign one.
func TestInstructionsAreShort(t *testing.T) {
	w := newWorld(t)
	for _, revision := range revisions[:2] {
		text := w.connect(revision).InitializeResult().Instructions
		tokens := 0
		for _, part := range regexp.MustCompile(`\pL+|\pN{1,3}|[^\s\pL\pN]{1,2}`).FindAllString(text, -1) {
			tokens += 1 + len(part)/8
		}
		require.Less(t, tokens, 400)
		at := -1
		for _, step := range []string{"mcpx_ls", "mcpx_search", "mcpx_types", "mcpx_exec"} {
			found := strings.Index(text, step)
			require.Greater(t, found, at, step)
			at = found
		}
	}
}
