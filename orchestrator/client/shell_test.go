package client_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/client"
	"mcpx/orchestrator/engine"
)

// ways are what the functions may use here.
func ways(t *testing.T) []string {
	if withImages(t) {
		return []string{"init", "curl", "wget"}
	}
	return []string{"init"}
}

func TestShellFunctions(t *testing.T) {
	cases := map[string]struct {
		script string
		out    string
		err    string
		code   int
		check  func(*testing.T, *world)
	}{
		"call": {script: `mcpx_call web 'go to' '{"url":"x y"}'`, out: "{\"got\":{\"url\":\"x y\"}}\n", check: func(t *testing.T, w *world) {
			require.Equal(t, []string{`web/go to {"url":"x y"}`}, w.calls)
		}},
		"call, names to be escaped": {script: `mcpx_call 'web/1' 'ö?%.' '{}'`, out: "{\"got\":{}}\n", check: func(t *testing.T, w *world) {
			require.Equal(t, []string{`web/1/ö?%. {}`}, w.calls)
		}},
		"call, a name that wget takes for a path": {script: `mcpx_call a .. >/dev/null 2>&1 || [ "$MCPX_HTTP" = wget ]`, check: func(t *testing.T, w *world) {
			require.Subset(t, []string{`a/.. {}`}, w.calls)
		}},
		"call, no arguments":    {script: `mcpx_call web any`, out: "{\"got\":{}}\n"},
		"call, arguments piped": {script: `printf '{"a":1}' | mcpx_call web any -`, out: "{\"got\":{\"a\":1}}\n"},
		"call, text":            {script: `mcpx_call web text`, out: "line 1\n\"two\" \\ ≤ 😀\t.\n"},
		"call, raw":             {script: `mcpx_call --raw web broken`, out: `{"isError":true,"content":[{"type":"text","text":"the page is \"gone\""}]}` + "\n"},
		"call, long text":       {script: `mcpx_call web long | wc -c`, out: "1048577\n"},
		"tool's error":          {script: `mcpx_call web broken`, err: "mcpx: the page is \"gone\"\n", code: 1},
		"denied":                {script: `mcpx_call web denied`, err: "mcpx: not granted [denied]; ask for it\n", code: 2},
		"not JSON":              {script: `mcpx_call web any '{'`, err: "mcpx: the body is not JSON [invalid_body]\n", code: 2},
		"usage":                 {script: `mcpx_call web`, err: "usage: mcpx_call [--raw] NAMESPACE TOOL [JSON|-]\n", code: 2},
		"in set -eu":            {script: `set -eu; v=$(mcpx_call web any); echo "<$v>"; mcpx_call web broken; echo not here`, out: "<{\"got\":{}}>\n", err: "mcpx: the page is \"gone\"\n", code: 1},
		"emit and result": {script: `mcpx_emit '{"a":1}'; mcpx_emit -s 'a "b"
c\'; echo '[2]' | mcpx_emit -; mcpx_result 1; mcpx_result 2`, check: func(t *testing.T, w *world) {
			require.Equal(t, []string{`{"a":1}`, `"a \"b\"\nc\\"`, "[2]\n"}, w.emits)
			require.Equal(t, "2", w.result)
		}},
		"emit, not JSON": {script: `mcpx_emit oh`, err: "mcpx: the body is not JSON [invalid_body]\n", code: 2},
		"log": {script: `mcpx_log info all 'is "well"'; mcpx_log bad x`, err: "mcpx: level is one of debug, info, warn, error [invalid_body]\n", code: 2, check: func(t *testing.T, w *world) {
			require.Equal(t, []string{`info: all is "well"`}, w.logs)
		}},
		"artifact": {script: `mcpx_artifact s.sh "$MCPX_INBOX/text" text/plain >got && grep -c '"id":"a1"' got; printf abc | mcpx_artifact 'ä b' - text/x >got`, out: "1\n", check: func(t *testing.T, w *world) {
			require.Equal(t, []string{"s.sh text/plain hello\n", "ä b text/x abc"}, w.artifacts)
		}},
		"artifact, no file": {script: `mcpx_artifact a /nope 2>/dev/null`, code: 2},
		"input":             {script: `mcpx_input text; mcpx_input ../text`, out: "hello\n", err: "mcpx_input: '../text' is not a name of an input\n", code: 2},
		"input, none":       {script: `unset MCPX_INBOX; mcpx_input text`, err: "mcpx_input: this run has no inputs; send them as options.inputs\n", code: 2},
		"tools":             {script: `mcpx_tools | grep -c '"servers"'`, out: "1\n"},
	}
	for _, way := range ways(t) {
		for name, c := range cases {
			t.Run(way+"/"+name, func(t *testing.T) {
				w := newWorld(t)
				w.client(client.Shell, servers())
				require.NoError(t, os.Mkdir(filepath.Join(w.dir, "inbox"), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(w.dir, "inbox", "text"), []byte("hello\n"), 0o644))
				got := w.onHost(way, `. "$MCPX_CLIENT"; `+c.script)
				require.Equal(t, outcome{c.out, c.err, c.code}, got)
				if c.check != nil {
					c.check(t, w)
				}
			})
		}
	}
}

func TestShellWithoutAnEndpoint(t *testing.T) {
	for _, way := range ways(t) {
		w := newWorld(t)
		w.client(client.Shell, nil)
		got := w.onHost(way, `MCPX_ENDPOINT=http://127.0.0.1:1 MCPX_SOCKET=/nope; export MCPX_SOCKET; . "$MCPX_CLIENT"; mcpx_call a b`)
		require.Equal(t, 2, got.code)
		require.Empty(t, got.stdout)
		require.NotEmpty(t, got.stderr)
	}
}

func TestShellWithoutMeans(t *testing.T) {
	w := newWorld(t)
	w.client(client.Shell, nil)
	got := w.onHost("none", `. "$MCPX_CLIENT"; mcpx_call a b`)
	require.Equal(t, 2, got.code)
	require.True(t, strings.Contains(got.stderr, "can be used here"), got.stderr)
}

// In their images the functions choose for themselves, and both shells know them.
func TestShellInItsImages(t *testing.T) {
	if !withImages(t) {
		return
	}
	for _, c := range []struct{ image, shell string }{{"mcpx/sh", "sh"}, {"mcpx/bash", "bash"}} {
		t.Run(c.shell, func(t *testing.T) {
			w := newWorld(t)
			w.client(client.Shell, servers())
			w.place(engine.File{Path: "s.sh", Mode: 0o444, Data: []byte(`set -eu
. "$MCPX_CLIENT"
mcpx_call web 'go to' '{"url":"ö"}'
mcpx_emit '[1]'
mcpx_log info done
v=$(mcpx_call web text)
[ "$v" = "$(printf 'line 1\n"two" \\ ≤ 😀\t.')" ]
printf abc | mcpx_artifact x - text/x >/dev/null
mcpx_call web broken || exit $((40 + $?))
`)})
			got := w.inImage(c.image, client.Env(client.Shell), c.shell, engine.JobDir+"/s.sh")
			require.Equal(t, outcome{"{\"got\":{\"url\":\"ö\"}}\n", "mcpx: the page is \"gone\"\n", 41}, got)
			require.Equal(t, []string{"[1]"}, w.emits)
			require.Equal(t, []string{"info: done"}, w.logs)
			require.Equal(t, []string{"x text/x abc"}, w.artifacts)
		})
	}
}
