package acceptance_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/run"
)

// servers installs the MCP servers of npm, once for this machine.
func servers(t *testing.T) string {
	t.Helper()
	const at = "../../../orchestrator/upstream/testdata/npm"
	lock, err := os.ReadFile(filepath.Join(at, "package-lock.json"))
	require.NoError(t, err)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	sum := sha256.Sum256(lock)
	dir := filepath.Join(cache, "mcpx-test", "npm-"+hex.EncodeToString(sum[:6]))
	out, err := exec.CommandContext(t.Context(), filepath.Join(at, "install.sh"), dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(dir, "node_modules")
}

// withServers starts a daemon whose scripts may call real MCP servers.
func withServers(t *testing.T) (*daemon, string) {
	t.Helper()
	modules := servers(t)
	shared := t.TempDir()
	node := func(args ...string) map[string]any {
		return map[string]any{"command": "node", "args": append([]string{filepath.Join(modules, args[0])}, args[1:]...)}
	}
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"everything": node("@modelcontextprotocol/server-everything/dist/index.js", "stdio"),
		"files":      node("@modelcontextprotocol/server-filesystem/dist/index.js", shared),
		"chrome-devtools": node("chrome-devtools-mcp/build/src/bin/chrome-devtools-mcp.js", "--headless", "--isolated",
			"--executablePath", "/usr/bin/chromium", "--chromeArg=--no-sandbox", "--chromeArg=--disable-background-networking",
			"--chromeArg=--disable-component-update", "--chromeArg=--disable-sync", "--chromeArg=--no-first-run"),
	}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "servers.json")
	require.NoError(t, os.WriteFile(path, config, 0o600))
	return begin(t, "--mcp-config", path), shared
}

// The thing that mcpx exists for: a script in a container without network has
// a browser on the host open a page, and leaves the picture.
func TestScreenshotFromAnyLanguageWithoutNetwork(t *testing.T) {
	d, _ := withServers(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte(`<h1 style="color: green">mcpx</h1>`)) //nolint:errcheck // a browser that hangs up is the test's failure
	}))
	defer page.Close()
	for kind, source := range map[string]string{
		"python3": `#!/usr/bin/env python3
import re, socket
try:
    socket.create_connection(("127.0.0.1", int("PAGE".rsplit(":", 1)[1])), timeout=2)
    raise SystemExit("the script reaches the page by itself")
except OSError:
    pass
from mcpx import tools, artifact
pages = tools.chrome_devtools.new_page(url="PAGE")
page = int(re.findall(r"(\d+): http\S+ \[selected\]", pages)[0])
artifact("shot.png", tools.chrome_devtools.take_screenshot(pageId=page, format="png"))
`,
		"deno": `#!/usr/bin/env -S deno run -A
const { tools, artifact } = await import(Deno.env.get("MCPX_CLIENT")!);
const pages: string = await tools.chrome_devtools.new_page({ url: "PAGE" });
const page = Number(/(\d+): http\S+ \[selected\]/.exec(pages)![1]);
await artifact("shot.png", await tools.chrome_devtools.take_screenshot({ pageId: page, format: "png" }));
`,
		"bash": `#!/bin/bash
set -e
. "$MCPX_CLIENT"
pages=$(mcpx_call chrome_devtools new_page '{"url":"PAGE"}')
page=$(echo "$pages" | sed -n 's/^\([0-9]*\): http.*selected.*/\1/p')
mcpx_call chrome_devtools take_screenshot "{\"pageId\":$page,\"format\":\"png\"}" |
  jq -r '.[] | select(.type == "image") | .data' | base64 -d | mcpx_artifact shot.png -
`,
	} {
		t.Run(kind, func(t *testing.T) {
			r := d.exec(t, run.Request{Source: strings.ReplaceAll(source, "PAGE", page.URL), Options: run.Options{Timeout: "2m"}})
			require.Equal(t, run.Exited, r.State, "%v %s", r.Error, r.Stderr)
			require.Equal(t, 0, *r.ExitCode, "%s", r.Stderr)
			require.Len(t, r.Calls, 2)
			require.Len(t, r.Artifacts, 1)
			require.Equal(t, "image/png", r.Artifacts[0].MIME)
			resp, err := d.http.Get("http://mcpx/v1/artifacts/" + r.Artifacts[0].ID)
			require.NoError(t, err)
			defer resp.Body.Close()
			shot, err := png.Decode(resp.Body)
			require.NoError(t, err)
			require.Greater(t, shot.Bounds().Dx(), 300)
		})
	}
}

func TestToolErrorsAreTypedAndTheScriptGoesOn(t *testing.T) {
	d, shared := withServers(t)
	require.NoError(t, os.WriteFile(filepath.Join(shared, "a.txt"), []byte("here"), 0o600))
	r := d.source(t, strings.ReplaceAll(`#!/usr/bin/env python3
from mcpx import tools, result, ToolError
print(tools.files.read_text_file(path="DIR/a.txt"))
def refused(call):
    try:
        call()
    except ToolError as e:
        return str(e)
    return "no error"
result({
    "outside": refused(lambda: tools.files.read_text_file(path="/etc/passwd")),
    "arguments": refused(lambda: tools.everything.echo(mesage="x")),
})
`, "DIR", shared))
	require.Equal(t, 0, *r.ExitCode, "%s", r.Stderr)
	require.Contains(t, r.Stdout, "here")
	var got map[string]string
	require.NoError(t, json.Unmarshal(r.Result, &got))
	require.Contains(t, got["outside"], "denied")
	require.Contains(t, got["arguments"], "message")
	require.Len(t, r.Calls, 3)
	require.True(t, r.Calls[0].OK)
	require.Equal(t, "tool_error", r.Calls[1].Error)
	require.Equal(t, "invalid_arguments", r.Calls[2].Error)
}

func TestNamespacesKeepToWhatWasAsked(t *testing.T) {
	d, _ := withServers(t)
	r := d.exec(t, run.Request{Source: `#!/bin/bash
curl -s "$MCPX_ENDPOINT/v1/tools" | jq -r '.servers[].namespace'
curl -s -o /dev/null -w '%{http_code}\n' "$MCPX_ENDPOINT/v1/call/files/list_allowed_directories" -d '{}'
curl -s -o /dev/null -w '%{http_code}\n' "$MCPX_ENDPOINT/v1/call/everything/echo" -d '{"message":"x"}'
`, Options: run.Options{Ns: []string{"everything"}}})
	require.Equal(t, "everything\n403\n200\n", r.Stdout, "%s", r.Stderr)
}

// A snippet names namespaces without importing them, awaits at the top, and
// returns its value; where it fails, the trace has the line that was written.
func TestSnippetsInEveryRuntimeOfTypeScript(t *testing.T) {
	d, _ := withServers(t)
	for _, runtime := range []string{"deno", "bun", "node"} {
		t.Run(runtime, func(t *testing.T) {
			r := d.exec(t, run.Request{Source: `const sum: string = await everything.get_sum({ a: 40, b: 2 });
console.log("to stdout");
console.warn("to the log");
emit({ step: 1 });
return { sum };
`, Options: run.Options{Runtime: runtime}})
			require.Equal(t, run.Exited, r.State, "%v %s", r.Error, r.Stderr)
			require.JSONEq(t, `{"sum":"The sum of 40 and 2 is 42."}`, string(r.Result))
			require.Equal(t, "to stdout\n", r.Stdout)
			require.True(t, warned(r, "to the log"))
			require.Len(t, r.Emits, 1)

			r = d.exec(t, run.Request{Source: "export function twice(n: string) { return 2 * Number(n); }\nexport default () => 1;\n",
				Options: run.Options{Runtime: runtime, Export: "twice", Args: []string{"21"}}})
			require.Equal(t, "42", string(r.Result), "%s", r.Stderr)

			r = d.exec(t, run.Request{Source: "await everything.echo({ message: \"x\" });\n\nthrow new Error(\"here\");\n", Options: run.Options{Runtime: runtime}})
			require.Equal(t, 1, *r.ExitCode)
			require.Contains(t, r.Stderr, "here")
			require.Contains(t, r.Stderr, ".ts:3", "the line as it was written")

			r = d.exec(t, run.Request{Source: "const plain = 1;\nconsole.log(plain);\n", Options: run.Options{Runtime: runtime}})
			require.Equal(t, "1\n", r.Stdout)
			require.Equal(t, "1", string(r.Result), "stdout is JSON")
		})
	}
}
