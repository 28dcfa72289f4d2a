package upstream_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
	"mcpx/orchestrator/upstream"
)

func rawManager(t *testing.T, limit int) *upstream.Manager {
	t.Helper()
	s := server(t, "raw", "raw")
	s.Env["API_TOKEN"] = "s3cr3t-value"
	m, err := upstream.New(upstream.Config{Servers: []upstream.Server{s}, Dir: t.TempDir(), Lookup: lookup, MaxResponse: limit})
	require.NoError(t, err)
	closing(t, m)
	return m
}

func TestBadAnswersAreTypedErrorsAndTheServerGoesOn(t *testing.T) {
	m := rawManager(t, 4<<20)
	for _, c := range []struct {
		tool, code string
		class      error
		says       string
	}{
		{"big", run.CodeResponseTooLarge, errdefs.ErrOutOfRange, "more than 4194304 bytes"},
		{"big-id-last", run.CodeResponseTooLarge, errdefs.ErrOutOfRange, "more than 4194304 bytes"},
		{"bad-json", run.CodeInvalidResponse, errdefs.ErrDataLoss, "not a JSON-RPC message"},
		{"bad-json-no-id", run.CodeInvalidResponse, errdefs.ErrDataLoss, "not a JSON-RPC message"},
		{"bad-utf8", run.CodeInvalidResponse, errdefs.ErrDataLoss, "not UTF-8"},
		{"not-a-result", run.CodeInvalidResponse, errdefs.ErrDataLoss, "no tool result"},
		{"refuse", run.CodeUpstreamError, errdefs.ErrUnknown, "error -32000: bad token [redacted]"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			_, err := call(t, m, "raw", c.tool, "")
			require.Contains(t, problem(t, err, c.code, c.class).Message, c.says)
			text, err := call(t, m, "raw", "ok", "")
			require.NoError(t, err)
			require.Equal(t, "fine", text)
			require.Zero(t, m.Status()[0].Restarts)
		})
	}
}

func TestAnswerOfFiftyMegabytesFitsWhenAllowed(t *testing.T) {
	m := rawManager(t, 64<<20)
	text, err := call(t, m, "raw", "big", "")
	require.NoError(t, err)
	require.Len(t, text, 50<<20)
}

func TestResultIsWhatTheServerSent(t *testing.T) {
	m := rawManager(t, 0)
	for name, want := range map[string]string{
		"numbers": `{"content":[],"structuredContent":{"id":9007199254740993},"unheard":"of"}`,
		"strange": `{"content":[{"type":"hologram","data":1}]}`,
	} {
		result, err := m.Call(t.Context(), tool.Call{Server: "raw", Tool: name})
		require.NoError(t, err)
		require.Equal(t, want, string(result.Raw))
	}
	listed, err := m.Tool(t.Context(), "raw", "big-id-last")
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"object","properties":{"zeta":{},"alpha":{}}}`, string(listed.InputSchema))
	require.Regexp(t, `(?s)zeta.*alpha`, string(listed.InputSchema), "the order is the server's")
	require.Equal(t, "big_id_last", listed.Function)
}

func TestFloodIsDrained(t *testing.T) {
	m := rawManager(t, 0)
	began := time.Now()
	text, err := call(t, m, "raw", "flood", "")
	require.NoError(t, err)
	require.Equal(t, "dry", text)
	require.Less(t, time.Since(began), 15*time.Second)
	status := m.Status()[0]
	require.LessOrEqual(t, len(status.Stderr), 16<<10)
	require.Contains(t, status.Stderr, "noise")
}

func TestWhatAServerPrintsOnStdoutCountsAsStderr(t *testing.T) {
	m := rawManager(t, 0)
	require.NoError(t, m.Refresh(t.Context()))
	stderr := m.Status()[0].Stderr
	require.Contains(t, stderr, "Welcome to the raw server!")
	require.Contains(t, stderr, "a log line")
}

func TestArgumentsAreCheckedBeforeAnythingIsSent(t *testing.T) {
	s := server(t, "one", "sdk")
	s.IdleTimeout = time.Millisecond
	m := manager(t, s)
	require.NoError(t, m.Refresh(t.Context()))
	require.Eventually(t, func() bool { return m.Status()[0].State == upstream.Idle }, 5*time.Second, time.Millisecond)
	for arguments, want := range map[string]struct{ field, says string }{
		`{}`:                      {"arguments.text", "arguments.text: is required and missing"},
		`{"text":5}`:              {"arguments.text", "arguments.text: wanted a string, got a number"},
		`{"text":"a","tims":2}`:   {"arguments.tims", "arguments.tims: is not a known property"},
		`[]`:                      {"arguments", "wanted an object, got an array"},
		`{"text":`:                {"arguments", "not JSON"},
		`{"text":"a","times":[]}`: {"arguments.times", "arguments.times: wanted an integer, got an array"},
	} {
		_, err := call(t, m, "one", "echo", arguments)
		e := problem(t, err, run.CodeInvalidArguments, errdefs.ErrInvalidArgument)
		require.Equal(t, want.field, e.Field)
		require.Contains(t, e.Message, want.says)
		require.Contains(t, e.Hint, `the least correct arguments are {"text":"text"}`)
	}
	require.Equal(t, upstream.Idle, m.Status()[0].State, "nothing was started for it")
}

func TestUnknownNamesAreAnsweredWithNearOnes(t *testing.T) {
	m := manager(t, server(t, "one", "sdk"), server(t, "chrome-devtools", "sdk"))
	_, err := call(t, m, "chrome_devtool", "echo", "")
	e := problem(t, err, run.CodeUnknownServer, errdefs.ErrNotFound)
	require.Equal(t, "did you mean chrome-devtools?", e.Hint)
	_, err = m.Server(t.Context(), "on")
	require.Equal(t, "did you mean one?", problem(t, err, run.CodeUnknownServer, errdefs.ErrNotFound).Hint)
	devtools, err := m.Server(t.Context(), "chrome_devtools")
	require.NoError(t, err)
	require.Equal(t, "chrome-devtools", devtools.Name)
	require.NotEmpty(t, devtools.Tools)
	_, err = call(t, m, "zzzzzzzz", "echo", "")
	require.Equal(t, "there are one, chrome-devtools", problem(t, err, run.CodeUnknownServer, errdefs.ErrNotFound).Hint)
	_, err = call(t, m, "one", "ecko", "")
	e = problem(t, err, run.CodeUnknownTool, errdefs.ErrNotFound)
	require.Equal(t, "did you mean echo?", e.Hint)
	_, err = m.Tool(t.Context(), "one", "nothing-like-it")
	require.Contains(t, problem(t, err, run.CodeUnknownTool, errdefs.ErrNotFound).Hint, "it has ")
}

func TestToolsThatAreKeptBackCanNotBeCalled(t *testing.T) {
	s := server(t, "one", "sdk")
	s.Tools, s.ExcludeTools = []string{"e*", "/^p/"}, []string{"environment"}
	off := server(t, "off", "sdk")
	off.Disabled = true
	m := manager(t, s, off)
	servers := m.Servers(t.Context())
	require.Len(t, servers, 1)
	var names []string
	for _, one := range servers[0].Tools {
		names = append(names, one.Name)
	}
	require.ElementsMatch(t, []string{"echo", "pid", "progress"}, names)
	for _, name := range []string{"environment", "die"} {
		_, err := call(t, m, "one", name, "")
		problem(t, err, run.CodeToolDenied, errdefs.ErrPermissionDenied)
	}
	_, err := call(t, m, "off", "echo", "")
	problem(t, err, run.CodeToolDenied, errdefs.ErrPermissionDenied)
	require.Equal(t, upstream.Disabled, m.Status()[1].State)
}

func TestServerThatCanNotBeStartedSaysWhy(t *testing.T) {
	missing := server(t, "missing", "sdk")
	missing.Command = "no-such-command-anywhere"
	unset := server(t, "unset", "sdk")
	unset.Problem = "args[0] wants the variable TOKEN, which is not set"
	m := manager(t, missing, unset)
	servers := m.Servers(t.Context())
	require.Contains(t, servers[0].Err, "no-such-command-anywhere: there is none in PATH")
	require.Contains(t, servers[1].Err, "wants the variable TOKEN")
	_, err := call(t, m, "unset", "echo", "{}")
	require.Contains(t, problem(t, err, run.CodeUpstreamUnavailable, errdefs.ErrUnavailable).Message, "TOKEN")
}

func TestDamagedCatalogueIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	config := server(t, "one", "sdk")
	require.NoError(t, managerIn(t, dir, config).Refresh(t.Context()))
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1, "no temporary file is left")
	whole, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.True(t, json.Valid(whole))
	for _, text := range []string{"", "{", `{"server":"other"}`, `{"server":"one","tools":7}`, string(whole[:len(whole)/2])} {
		require.NoError(t, os.WriteFile(files[0], []byte(text), 0o600))
		m := managerIn(t, dir, config)
		require.NotEmpty(t, m.Servers(t.Context())[0].Tools)
		require.NoError(t, m.Close(t.Context()))
	}
}

func TestCatalogueHoldsNoSecret(t *testing.T) {
	dir := t.TempDir()
	s := server(t, "one", "sdk")
	s.Env["API_TOKEN"] = "s3cr3t-value"
	require.NoError(t, managerIn(t, dir, s).Refresh(t.Context()))
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.NotContains(t, string(text), "s3cr3t")
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

// The catalogue is of a time when echo was another tool.
func TestOldCatalogueRefusesNothing(t *testing.T) {
	for name, old := range map[string]tool.Tool{
		"other schema": {Name: "echo", InputSchema: json.RawMessage(`{"type":"object","required":["words"]}`)},
		"other name":   {Name: "say"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := server(t, "one", "sdk")
			require.NoError(t, upstream.SaveRecord(dir, s, []tool.Tool{old}))
			m := managerIn(t, dir, s)
			require.Equal(t, old.Name, m.Servers(t.Context())[0].Tools[0].Name)
			text, err := call(t, m, "one", "echo", `{"text":"new"}`)
			require.NoError(t, err)
			require.Equal(t, "new", text)
		})
	}
}
