package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
	"mcpx/orchestrator/run"
)

func TestExecAnswersInEveryRevision(t *testing.T) {
	w := newWorld(t)
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			session := w.connect(revision)
			require.Equal(t, revision, session.InitializeResult().ProtocolVersion)
			got := call(t, session, "mcpx_exec", object{"source": "x", "options": object{"args": []string{"a"}}})
			require.False(t, got.IsError)
			require.Contains(t, words(t, got), "exited, exit code 0, 12ms, /bin/bash, run ")
			require.Contains(t, words(t, got), "--- stdout, 6 bytes ---\nhello")
			var result run.Result
			structured(t, got, &result)
			require.Equal(t, "hello\n", result.Stdout)
			require.Equal(t, run.Exited, result.State)
		})
	}
}

func TestRunNamesAFile(t *testing.T) {
	w := newWorld(t)
	got := call(t, w.connect("2025-11-25"), "mcpx_run", object{"file": "report", "options": object{"args": []string{"a"}}})
	require.False(t, got.IsError)
	require.Equal(t, "report", w.runner.seen[0].File)
	require.Equal(t, []string{"a"}, w.runner.seen[0].Options.Args)
}

// What strict clients check: structured content, when there is any, fits the
// output schema; and there is some unless the result is an error.
func TestStructuredContentFitsItsSchema(t *testing.T) {
	w := newWorld(t)
	w.runner.does["fails"] = func(_ context.Context, emit emitter) {
		emit(run.EventStderr, &run.OutputFrame{Data: []byte{0xff, 'x'}})
		emit(run.EventEmit, &run.Emit{Value: json.RawMessage(`[1]`)})
		emit(run.EventLog, &run.Log{Level: "warn", Message: "careful"})
		emit(run.EventCall, &run.Call{Server: "s", Tool: "t", Error: "denied"})
		emit(run.EventArtifact, &run.Artifact{ID: "a", Name: "a.png", URI: "mcpx://artifacts/a"})
		emit(run.EventSkip, &run.Skip{Name: "p", Reason: "a fifo"})
		exits(emit, 3)
	}
	w.runner.does["killed"] = func(_ context.Context, emit emitter) {
		emit(run.EventError, &run.Error{Code: run.CodeOOMKilled, Message: "out of memory", Hint: "ask for more"})
		emit(run.EventEnd, &run.End{State: run.OOMKilled, OOMKilled: true, Signal: "SIGKILL"})
	}
	w.runner.does["big"] = printing(strings.Repeat("x", 1<<20))
	for _, revision := range revisions[:2] {
		session := w.connect(revision)
		schemas := map[string]*jsonschema.Resolved{}
		for described, err := range session.Tools(t.Context(), nil) {
			require.NoError(t, err)
			require.NotEmpty(t, described.Description)
			require.NotEmpty(t, described.Annotations.Title)
			if described.OutputSchema != nil {
				schemas[described.Name] = resolve(t, described.OutputSchema)
			}
		}
		require.Len(t, schemas, 4)
		for name, args := range map[string][]object{
			"mcpx_exec":   {{"source": "x"}, {"source": "fails"}, {"source": "killed"}, {"source": "big"}, {"source": "denied"}, {}, {"sauce": "x"}},
			"mcpx_run":    {{"file": "x"}, {"file": ""}},
			"mcpx_ls":     {{}, {"ns": "browser"}, {"ns": "nope"}},
			"mcpx_search": {{"query": "open"}, {"query": "zzz"}, {"query": ""}},
		} {
			for _, one := range args {
				got := call(t, session, name, one)
				require.NotEmpty(t, words(t, got))
				if got.StructuredContent == nil {
					require.True(t, got.IsError, "%s %v has no structured content", name, one)
					continue
				}
				var v any
				structured(t, got, &v)
				require.NoError(t, schemas[name].Validate(v), "%s %v", name, one)
			}
		}
	}
}

func resolve(t *testing.T, schema any) *jsonschema.Resolved {
	t.Helper()
	data, err := json.Marshal(schema)
	require.NoError(t, err)
	var s jsonschema.Schema
	require.NoError(t, json.Unmarshal(data, &s))
	resolved, err := s.Resolve(nil)
	require.NoError(t, err)
	return resolved
}

func TestFailedScriptIsAnErrorWithAllThatMatters(t *testing.T) {
	w := newWorld(t)
	w.runner.does["fails"] = func(ctx context.Context, emit emitter) {
		kept, err := w.config.Artifacts.Keep(ctx, artifacts.Meta{Name: "shot.png", MIME: "image/png", Size: -1}, strings.NewReader("png"))
		require.NoError(t, err)
		emit(run.EventStdout, &run.OutputFrame{Text: "out\n"})
		emit(run.EventStderr, &run.OutputFrame{Text: "Traceback\n"})
		emit(run.EventLog, &run.Log{Level: "warn", Message: "careful"})
		emit(run.EventEmit, &run.Emit{Value: json.RawMessage(`{"n":1}`)})
		emit(run.EventCall, &run.Call{Server: "s", Tool: "t", DurationMs: 5, OK: true})
		emit(run.EventSkip, &run.Skip{Name: "p", Reason: "a fifo"})
		emit(run.EventArtifact, &kept)
		exits(emit, 3)
	}
	got := call(t, w.connect("2025-11-25"), "mcpx_exec", object{"source": "fails"})
	require.True(t, got.IsError)
	text := words(t, got)
	var result run.Result
	structured(t, got, &result)
	a := result.Artifacts[0]
	for _, want := range []string{
		"exited, exit code 3", "run " + result.RunID, "--- stdout, 4 bytes ---\nout\n", "--- stderr, 10 bytes ---\nTraceback\n",
		"warn: careful", `{"n":1}`, "s.t ok, 5 ms", "p was not taken: a fifo",
		"shot.png, image/png, 3 bytes, sha256 " + a.SHA256 + ", " + a.URI,
	} {
		require.Contains(t, text, want)
	}
	link := got.Content[1].(*sdk.ResourceLink)
	require.Equal(t, a.URI, link.URI)
	require.EqualValues(t, 3, *link.Size)
}

func TestWhatMcpxRefusesSaysWhy(t *testing.T) {
	w := newWorld(t)
	session := w.connect("2026-07-28")
	for _, c := range []struct {
		args object
		want []string
	}{
		{object{"source": "denied"}, []string{"denied: no rule grants it", "hint: ask for less"}},
		{object{}, []string{"invalid_request: source: it is missing"}},
		{object{"sauce": "x"}, []string{"invalid_body: sauce: unknown field", "inputSchema"}},
		{object{"source": "x", "options": object{"arg": 1}}, []string{"invalid_body: options.arg: unknown field"}},
		{object{"source": "x", "options": object{"args": "a"}}, []string{"options.args: a list was expected, not a string"}},
		{object{"source": "x", "options": object{"output": "text"}}, []string{"unsupported_option: options.output"}},
		{object{"source": "x", "options": object{"task": object{"ttl": 1}}}, []string{"unsupported_option: options.task"}},
	} {
		got := call(t, session, "mcpx_exec", c.args)
		require.True(t, got.IsError)
		require.Nil(t, got.StructuredContent)
		for _, want := range c.want {
			require.Contains(t, words(t, got), want)
		}
	}
	_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "nope"})
	require.ErrorContains(t, err, "nope")
}

func TestLargeOutputIsCutAndAddressed(t *testing.T) {
	w := newWorld(t)
	const size = 1 << 20
	w.runner.does["floods"] = func(_ context.Context, emit emitter) {
		emit(run.EventStdout, &run.OutputFrame{Text: "HEAD" + strings.Repeat("≤", size/3) + "TAIL"})
		for range 1000 {
			emit(run.EventEmit, &run.Emit{Value: json.RawMessage(`"` + strings.Repeat("e", 1000) + `"`)})
		}
		emit(run.EventResult, &run.ResultFrame{Value: json.RawMessage(`"` + strings.Repeat("r", 200_000) + `"`)})
		exits(emit, 0)
	}
	session := w.connect("2026-07-28")
	got := call(t, session, "mcpx_exec", object{"source": "floods"})
	text := words(t, got)
	require.Less(t, len(text), 64<<10)
	require.Contains(t, text, "HEAD≤")
	require.Contains(t, text, "≤TAIL")
	require.Regexp(t, `\[\.\.\. 10\d{5} bytes cut \.\.\.\]`, text)
	var result run.Result
	structured(t, got, &result)
	whole := "mcpx://runs/" + result.RunID + "/stdout"
	require.Contains(t, text, whole)
	require.LessOrEqual(t, len(result.Stdout), 64<<10)
	require.Empty(t, result.Result)
	require.Less(t, len(result.Emits), 100)
	var cut []string
	for _, l := range result.Logs {
		require.Equal(t, "answer_cut", l.Code)
		cut = append(cut, l.Message)
	}
	require.Len(t, cut, 3)
	require.Contains(t, cut[0], whole)

	// The rest is there for those who ask.
	for part, least := range map[string]int{"stdout": size, "emits": 1_000_000, "result": 200_000} {
		read, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "mcpx://runs/" + result.RunID + "/" + part})
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(read.Contents[0].Text), least, part)
	}
}

func TestProgressRises(t *testing.T) {
	w := newWorld(t)
	goOn := make(chan struct{})
	w.runner.does["steps"] = func(_ context.Context, emit emitter) {
		for range 3 {
			emit(run.EventStdout, &run.OutputFrame{Text: "a step\n"})
			<-goOn
		}
		exits(emit, 0)
	}
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			told := make(chan *sdk.ProgressNotificationParams, 100)
			session := w.connect(revision, func(o *sdk.ClientOptions, _ http.Header) {
				o.ProgressNotificationHandler = func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { told <- r.Params }
			})
			params := &sdk.CallToolParams{Name: "mcpx_exec", Arguments: object{"source": "steps"}}
			params.SetProgressToken("tok")
			done := make(chan *sdk.CallToolResult, 1)
			go func() {
				result, err := session.CallTool(t.Context(), params)
				if err != nil {
					t.Error(err)
				}
				done <- result
			}()
			last := 0.0
			for n := range 2 {
				select {
				case p := <-told:
					require.Equal(t, "tok", p.ProgressToken)
					require.Greater(t, p.Progress, last)
					require.NotEmpty(t, p.Message)
					last = p.Progress
				case <-time.After(20 * time.Second):
					t.Fatalf("notification %d does not come", n)
				}
				if n == 0 {
					// The second notification is the heartbeat's or the next step's.
					goOn <- struct{}{}
				}
			}
			goOn <- struct{}{}
			goOn <- struct{}{}
			require.False(t, (<-done).IsError)
		})
	}
}

func TestClientsCancellationEndsTheRun(t *testing.T) {
	w := newWorld(t)
	w.runner.does["waits"] = w.runner.untilEnded
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			session := w.connect(revision)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "mcpx_exec", Arguments: object{"source": "waits"}})
				done <- err
			}()
			require.Eventually(t, func() bool { return w.jobs.Stats().Running == 1 }, 10*time.Second, time.Millisecond)
			cancel()
			require.Error(t, <-done)
			cause := receive(t, w.runner.causes)
			if revision >= "2026-07-28" {
				require.ErrorIs(t, cause, run.ErrClientGone, "without sessions, hanging up is how a client cancels")
			} else {
				// It says that it cancels, and hangs up: who is first, wins.
				require.True(t, errors.Is(cause, run.ErrCancelled) || errors.Is(cause, run.ErrClientGone), "%v", cause)
			}
		})
	}
}

func TestCancelledNotificationEndsTheRun(t *testing.T) {
	w := newWorld(t)
	w.runner.does["waits"] = w.runner.untilEnded
	session := w.connect("2025-11-25")
	header := []string{"Mcp-Session-Id", session.ID(), "Mcp-Protocol-Version", "2025-11-25"}
	answered := make(chan string, 1)
	go func() {
		_, body := w.post(`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"mcpx_exec","arguments":{"source":"waits"}}}`, header...)
		answered <- body
	}()
	require.Eventually(t, func() bool { return w.jobs.Stats().Running == 1 }, 10*time.Second, time.Millisecond)
	res, _ := w.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}`, header...)
	require.Equal(t, http.StatusAccepted, res.StatusCode)
	require.ErrorIs(t, receive(t, w.runner.causes), run.ErrCancelled)
	require.Contains(t, receive(t, answered), `"id":77`)
}

func TestClientsDisconnectEndsTheRun(t *testing.T) {
	w := newWorld(t)
	w.runner.does["waits"] = w.runner.untilEnded
	for _, revision := range revisions[:2] {
		session := w.connect(revision)
		go session.CallTool(t.Context(), &sdk.CallToolParams{Name: "mcpx_exec", Arguments: object{"source": "waits"}}) //nolint:errcheck // it is cut off
		require.Eventually(t, func() bool { return w.jobs.Stats().Running == 1 }, 10*time.Second, time.Millisecond)
		w.http.CloseClientConnections()
		require.ErrorIs(t, receive(t, w.runner.causes), run.ErrClientGone)
	}
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing comes")
		panic("unreachable")
	}
}

func TestSessionsKeepWhatBelongsToThem(t *testing.T) {
	w := newWorld(t)
	one, two := w.connect("2025-11-25"), w.connect("2025-11-25")
	for _, session := range []*sdk.ClientSession{one, one, two} {
		call(t, session, "mcpx_exec", object{"source": "x"})
	}
	call(t, one, "mcpx_exec", object{"source": "x", "options": object{"session": "own"}})
	call(t, w.connect("2026-07-28"), "mcpx_exec", object{"source": "x"})
	var names []string
	for _, req := range w.runner.seen {
		names = append(names, req.Options.Session)
	}
	require.Equal(t, names[0], names[1])
	require.NotEqual(t, names[0], names[2])
	require.NotContains(t, names[0], one.ID())
	require.Equal(t, []string{"own", ""}, names[3:])
}
