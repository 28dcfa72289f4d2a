package client_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/client"
	"mcpx/orchestrator/engine"
)

const pythonScript = `
import os, threading
from mcpx import tools, emit, artifact, input, log, result, ToolError, MCPXError

got = tools.web.go_to(url="x", **{"class": "y"})
assert got == {"got": {"url": "x", "class": "y"}}, got
assert got.raw["structuredContent"] == got
assert tools.web.go_to({"url": "ö"})["got"]["url"] == "ö"
assert tools["web/1"]["go to"]({"url": "z"}) == {"got": {"url": "z"}}
text = tools.web.text()
assert text == 'line 1\n"two" \\ \u2264 \U0001F600\t.' and isinstance(text, str) and text.raw["content"]
assert len(tools.web.long()) == 1 << 20
blocks = tools.web.shot(format="png")
assert blocks[1]["mimeType"] == "image/png"
assert tools.web.broken.raw()["isError"] is True
assert tools.dark.anything(a=1) == {"got": {"a": 1}}

try:
    tools.web.broken()
    assert False
except ToolError as e:
    assert (e.server, e.tool, e.code) == ("web/1", "broken", "tool_error"), e
    assert e.raw["isError"] and e.diagnostics["detail"] == 'the page is "gone"'
    assert str(e) == 'web/1.broken: the page is "gone"'
try:
    tools.web.denied()
    assert False
except MCPXError as e:
    assert isinstance(e, ToolError) and e.code == "denied" and e.hint == "ask for it" and e.status == 403 and e.raw is None
    assert e.diagnostics == {"code": "denied", "detail": "not granted", "hint": "ask for it", "status": 403}
for wrong in (lambda: tools.web.go_two, lambda: tools.webb, lambda: tools.web.__wrapped__):
    try:
        wrong()
        assert False
    except AttributeError as e:
        log.debug(e)
for wrong in (lambda: tools.web.go_to([1]), lambda: tools.web.go_to({}, url=1), lambda: emit(float("nan")), lambda: artifact("x", 1)):
    try:
        wrong()
        assert False
    except (TypeError, ValueError):
        pass
assert not hasattr(tools, "nope") and "go_to" in dir(tools.web)

emit({"n": [1, None, "ä"]})
emit(got)
log.info("two", 2)
artifact("a.txt", "hello")
artifact("b.bin", b"\x00\x01")
ref = artifact("shot.png", blocks)
assert ref["uri"] == "mcpx://artifacts/a1", ref
artifact("block", blocks[1], mime="image/x")
artifact("raw", tools.web.shot.raw())
artifact("file", {"path": __file__})
open("/tmp/empty", "w").close()
artifact("empty", {"path": "/tmp/empty"})
try:
    input("x")
    assert False
except MCPXError as e:
    assert e.code == "no_input"
os.environ["MCPX_INBOX"] = "/run/mcpx/job"
assert input.text("s.py").startswith("\nimport os") and isinstance(input("s.py"), bytes)
try:
    input("../x")
    assert False
except MCPXError:
    pass

failed = []
def many(i):
    for j in range(50):
        if tools.web.go_to(url=str((i, j)))["got"]["url"] != str((i, j)):
            failed.append((i, j))
threads = [threading.Thread(target=many, args=(i,)) for i in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not failed
if os.fork() == 0:
    os._exit(0 if tools.web.go_to(url="child")["got"]["url"] == "child" else 1)
assert os.wait()[1] == 0
assert tools.web.go_to(url="parent")["got"]["url"] == "parent"
result(1)
result({"done": True})
print("through")
`

func TestPythonClient(t *testing.T) {
	if !withImages(t) {
		return
	}
	for name, env := range map[string]map[string]string{
		"by the socket": {}, "by the endpoint": {"MCPX_SOCKET": "/nope"}, "by the endpoint alone": {"MCPX_SOCKET": ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.client(client.Python, servers())
			w.place(engine.File{Path: "s.py", Mode: 0o444, Data: []byte(pythonScript)})
			for key, value := range client.Env(client.Python) {
				env[key] = value
			}
			got := w.inImage("mcpx/python3", env, "python3", engine.JobDir+"/s.py")
			require.Equal(t, outcome{"through\n", "", 0}, got)
			require.Contains(t, w.calls, `web/1/go to {"url": "ö"}`)
			require.Equal(t, []string{`{"n": [1, null, "ä"]}`, `{"got": {"url": "x", "class": "y"}}`}, w.emits)
			require.Equal(t, `{"done": true}`, w.result)
			require.Equal(t, []string{
				`debug: no tool in tools.web: 'go_two'; did you mean go_to?`, `debug: no namespace 'webb'; did you mean web?`,
				`debug: no tool in tools.web: '__wrapped__'; there are broken, denied, go_to, long, shot, text`, `info: two 2`,
			}, w.logs)
			require.Equal(t, []string{
				"a.txt text/plain; charset=utf-8 hello", "b.bin - \x00\x01", "shot.png image/png \x89PNG\r\n\x1a\n", "block image/x \x89PNG\r\n\x1a\n",
				"raw image/png \x89PNG\r\n\x1a\n", "file - " + pythonScript[:40], "empty - ",
			}, w.artifacts)
		})
	}
}

func TestPythonFailsClearlyOutsideOfARun(t *testing.T) {
	if !withImages(t) {
		return
	}
	w := newWorld(t)
	w.client(client.Python, servers())
	env := client.Env(client.Python)
	env["MCPX_SOCKET"], env["MCPX_ENDPOINT"] = "", ""
	got := w.inImage("mcpx/python3", env, "python3", "-c", "from mcpx import tools; tools.web.text()")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "web/1.text: this program does not run under mcpx: MCPX_ENDPOINT is not set")
}

// The declarations are Python, whatever a server says of itself.
func TestPythonDeclarationsParse(t *testing.T) {
	if !withImages(t) {
		return
	}
	w := newWorld(t)
	w.types(client.Python, append(servers(), hostile()))
	got := w.inImage("mcpx/python3", nil, "python3", "-c", `import ast; ast.parse(open("/run/mcpx/job/client/python/mcpx/__init__.pyi").read()); print("parsed")`)
	require.Equal(t, outcome{"parsed\n", "", 0}, got)
	require.FileExists(t, filepath.Join(w.dir, "job/client/python/mcpx/py.typed"))
}
