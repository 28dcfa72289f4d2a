package client_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/client"
	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
)

func TestWhatIsLaunched(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		ok     bool
		want   string // the text that runs; "" for the same
		err    string
		kind   string
		export string
		file   string
	}{
		"plain":                        {text: "console.log(1)\n"},
		"plain, with await":            {text: "const x = await fetch('http://x'); console.log(x)"},
		"plain, names declared":        {text: "const emit = 1, tools = 2; function log() {} log(emit, tools); import { web } from './x.ts'; web()"},
		"plain, names of members":      {text: "const a = { emit: 1 }; a.emit; class B { log() {} web = 2 }; 'emit(1)'; // emit(1)\n/emit/"},
		"plain, own global":            {text: "result = 3; console.log(result)"},
		"plain, return of a function":  {text: "function f() { return 1 }; (() => { return 2 })()"},
		"plain, types only":            {text: "type emit = string; let x: emit; interface web { log: string }"},
		"plain, another's import":      {text: "import fs from 'node:fs'; export const x = 1"},
		"empty":                        {text: ""},
		"only #!":                      {text: "#!/usr/bin/env deno"},
		"malformed":                    {text: "let x: = emit(1)"},
		"malformed, returns before":    {text: "return 1\nlet x: = 2"},
		"namespace":                    {text: "await web.shot()", ok: true},
		"namespace, of the host too":   {text: "crypto.randomUUID()"},
		"namespace, not asked for":     {text: "dark.x()"},
		"emit":                         {text: "emit(1)", ok: true},
		"in a template":                {text: "console.log(`${await web.text()}`)", ok: true},
		"shorthand":                    {text: "const o = { tools }", ok: true},
		"declared elsewhere":           {text: "{ const emit = 1 } emit(2)", ok: true},
		"args":                         {text: "console.log(args)", ok: true},
		"import":                       {text: "import { tools } from 'mcpx'; tools.web.shot()", ok: true},
		"import, when it runs":         {text: "const m = await import('mcpx')", ok: true},
		"return":                       {text: "return 1", ok: true, want: "export default async () => {return 1\n}\n"},
		"return, after #!":             {text: "#!/usr/bin/env deno\nreturn 1", ok: true, want: "export default async () => {\nreturn 1\n}\n"},
		"return, after imports":        {text: "// a\nimport a, { 'b' as c } from \"x\" with { type: 'json' }; import 'y'\nimport * as z\n  from 'z'\n// d\nreturn a", ok: true, want: "// a\nimport a, { 'b' as c } from \"x\" with { type: 'json' }; import 'y'\nimport * as z\n  from 'z';export default async () => {\n// d\nreturn a\n}\n"},
		"return, import()":             {text: "import('x'); import.meta.url; return 1", ok: true, want: "export default async () => {import('x'); import.meta.url; return 1\n}\n"},
		"return, import late":          {text: "emit(1)\nimport a from 'x'\nreturn a", err: `script.ts:2: Unexpected "a" (a script that returns at its top is run as a function)`},
		"return, export":               {text: "export const x = 1\nreturn x", err: `script.ts:1: Unexpected "export" (a script that returns at its top is run as a function)`},
		"return, comment at the end":   {text: "return 1 // x", ok: true, want: "export default async () => {return 1 // x\n}\n"},
		"return, in CommonJS":          {text: "const fs = require('fs'); if (!fs) return; module.exports = 1", file: "script.js", kind: "node"},
		"return, in a .cjs with tools": {text: "if (tools) return", file: "script.cjs", kind: "node", ok: true},
		"default export":               {text: "export default (a) => a", ok: true},
		"default export, by name":      {text: "function f() {} export { f as default }", ok: true},
		"export":                       {text: "export function go() {}", ok: true, export: "go"},
		"export, other":                {text: "export function go() {}", export: "gone", err: `the script does not export "gone"`},
		"export, may be":               {text: "export * from './x.ts'", ok: true, export: "gone"},
		"main":                         {text: "#!/usr/bin/env deno\nif (import.meta.main) emit(1)", ok: true, want: "#!/usr/bin/env deno\nObject.defineProperty(import.meta,\"main\",{value:true});if (import.meta.main) emit(1)"},
		"python":                       {text: "return 1; emit(2)", kind: "python3"},
		"python, export":               {text: "emit(2)", kind: "python3", export: "x", err: "python3 has no exports that mcpx could call"},
		"TypeScript's own":             {text: "enum A { x = 'y' }\nconst f = <T,>(t: T): T => t\nreturn f(A.x) as string satisfies string", ok: true, want: "export default async () => {enum A { x = 'y' }\nconst f = <T,>(t: T): T => t\nreturn f(A.x) as string satisfies string\n}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.kind == "" {
				c.kind = "deno"
			}
			if c.file == "" {
				c.file = "script.ts"
			}
			all := append(servers(), large(1, 1)...)
			all[2].Namespace = "crypto"
			launched, ok, err := client.Launch(client.LaunchRequest{Kind: c.kind, ScriptName: c.file, Text: []byte(c.text), Servers: all, Ns: []string{"web", "crypto"}, Export: c.export})
			if c.err != "" {
				known, is := errors.AsType[*run.Error](err)
				require.True(t, is, "%v", err)
				require.Equal(t, c.err, known.Message)
				require.NotEmpty(t, known.Hint)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.ok, ok)
			if !ok {
				require.Zero(t, launched)
				return
			}
			if c.want == "" {
				c.want = c.text
			}
			require.Equal(t, c.want, string(launched.Text))
			require.Equal(t, "mcpx-launch.mjs", launched.Entry)
		})
	}
}

// launch puts a script into the world and runs it as the orchestrator does.
func (w *world) launch(kind, name, text, export string, args ...string) outcome {
	w.t.Helper()
	w.client(client.TypeScript, servers())
	launched, ok, err := client.Launch(client.LaunchRequest{Kind: kind, ScriptName: name, Text: []byte(text), Servers: servers(), Export: export, CaptureConsole: true})
	require.NoError(w.t, err)
	if !ok {
		launched.Text, launched.Entry = []byte(text), name
	}
	w.place(launched.Files...)
	w.place(engine.File{Path: name, Mode: 0o444, Data: launched.Text})
	env := client.Env(client.TypeScript)
	maps.Copy(env, launched.Env)
	return w.inImage("mcpx/"+kind, env, slices.Concat(command(kind), []string{engine.JobDir + "/" + launched.Entry}, args)...)
}

func command(kind string) []string {
	return map[string][]string{
		"deno": {"deno", "run", "--no-prompt", "--cached-only", "--allow-all"},
		"bun":  {"bun", "--no-install"},
		"node": {"node", "--experimental-transform-types"},
	}[kind]
}

const snippet = `#!/usr/bin/env deno
type Shape = { got: { url: string } };
enum Kind { A = "a" }
const got = (await web.go_to({ url: "x", class: "y" })) as Shape;
if (got.raw.structuredContent.got.url !== "x") throw new Error("raw");
if (Object.keys(got).join() !== "got") throw new Error("raw is seen");
if ((await tools["web/1"]["go to"]({ url: "ö" })).got.url !== "ö") throw new Error("by name");
if ((await web.text()) !== 'line 1\n"two" \\ ≤ 😀\t.') throw new Error("text");
if ((await web.long()).length !== 1 << 20) throw new Error("long");
if ((await web.broken.raw()).isError !== true) throw new Error("broken.raw");
if ((await dark.anything({ a: 1 })).got.a !== 1) throw new Error("open");
const blocks = await web.shot();
try {
  await web.broken();
  throw new Error("not here");
} catch (e) {
  if (!(e instanceof ToolError)) throw e;
  emit([e.name, e.server, e.tool, e.code, e.raw.isError, e.diagnostics, e.message]);
}
await web.denied({}).catch((e) => emit([e instanceof ToolError, e.diagnostics, e.raw === undefined]));
for (const wrong of [() => web.go_two, () => tools.webb, () => artifact("x", 1), () => web.go_to([]), () => input("x"), () => emit(undefined)]) {
  try {
    await wrong();
    throw new Error("not here: " + wrong);
  } catch (e) {
    await log.debug(e.message);
  }
}
await artifact("a.txt", "hello");
await artifact("b.bin", new Uint8Array([0, 1]));
await artifact("c.bin", new Uint8Array([9, 65, 66]).subarray(1).buffer.slice(1));
const ref = await artifact("shot.png", blocks);
await artifact("block", blocks[1], { mime: "image/x" });
await artifact("raw", await web.shot.raw());
await artifact("file", { path: "/run/mcpx/job/client/package.json" });
console.log("out", args.length, ref.uri, Kind.A);
console.info("told %s", "twice");
console.error("bad", 1);
const many = await Promise.all(Array.from({ length: 100 }, (_, i) => web.go_to({ url: String(i) })));
if (many.some((m, i) => m.got.url !== String(i))) throw new Error("mixed up");
for (let i = 0; i < 5; i++) emit(i);
return { done: args };
`

func TestSnippets(t *testing.T) {
	if !withImages(t) {
		return
	}
	for _, kind := range []string{"deno", "bun", "node"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			got := w.launch(kind, "s.ts", snippet, "", "a", "-b")
			require.Equal(t, outcome{"out 2 mcpx://artifacts/a1 a\ntold twice\n", "bad 1\n", 0}, got)
			require.Equal(t, `{"done":["a","-b"]}`, w.result)
			require.Equal(t, []string{
				`["ToolError","web/1","broken","tool_error",true,{"code":"tool_error","detail":"the page is \"gone\""},"web/1.broken: the page is \"gone\""]`,
				`[true,{"code":"denied","detail":"not granted","hint":"ask for it","status":403},true]`,
				"0", "1", "2", "3", "4",
			}, w.emits)
			require.Equal(t, []string{
				`debug: no tool in tools.web: "go_two"; did you mean go_to?`, `debug: no namespace "webb"; did you mean web?`,
				`debug: artifact takes text, bytes, { path }, an MCP image, audio or resource block, or a result that carries one`,
				`debug: web/1.go to takes one object of arguments`, `debug: input "x": this run has no inputs (send it as options.inputs)`,
				`debug: emit: undefined has no JSON`, `info: told twice`, `error: bad 1`,
			}, w.logs)
			require.Equal(t, []string{
				"a.txt text/plain; charset=utf-8 hello", "b.bin - \x00\x01", "c.bin - AB", "shot.png image/png \x89PNG\r\n\x1a\n",
				"block image/x \x89PNG\r\n\x1a\n", "raw image/png \x89PNG\r\n\x1a\n", `file - {"name": "mcpx", "type": "module", "expo`,
			}, w.artifacts)
		})
	}
}

func TestModules(t *testing.T) {
	if !withImages(t) {
		return
	}
	for _, kind := range []string{"deno", "bun", "node"} {
		for name, c := range map[string]struct {
			file, text, export string
			out, result        string
		}{
			"import":           {"s.ts", "import { tools, result } from 'mcpx';\nconst r: any = await tools.web.go_to({ url: 'x' });\nconsole.log(r.got.url); result(r);", "", "x\n", `{"got":{"url":"x"}}`},
			"import of a file": {"s.ts", "import { tools } from './client/mcpx.js'; import { emit } from 'mcpx';\nconsole.log((await tools.web.text()).length, typeof emit)", "", "21 function\n", ""},
			"default export":   {"s.ts", "export default async function (a: string, b: string) { return [a, b, (await web.go_to({ url: a })).got.url]; }", "", "", `["1","2","1"]`},
			"named export":     {"s.ts", "export default () => 'no'; export const go = (...all: string[]) => ({ all });", "go", "", `{"all":["1","2"]}`},
			"class":            {"s.ts", "export default class A {}\nconsole.log('in')\nresult(5)", "", "in\n", "5"},
			"main":             {"s.ts", "#!/usr/bin/env x\nif (import.meta.main) { emit(1); console.log('main', args) }", "", "", ""},
			"no value":         {"s.ts", "return", "", "", ""},
			"null":             {"s.ts", "return null", "", "", "null"},
			"JavaScript":       {"s.mjs", "const { got } = await web.go_to({ url: 'x' }); return got.url", "", "", `"x"`},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				w := newWorld(t)
				got := w.launch(kind, c.file, c.text, c.export, "1", "2")
				require.Equal(t, 0, got.code, got.stderr)
				require.Empty(t, got.stderr)
				if name == "main" {
					require.True(t, strings.HasPrefix(got.stdout, "main "), got.stdout)
					return
				}
				require.Equal(t, c.out, got.stdout)
				require.Equal(t, c.result, w.result)
			})
		}
	}
}

func TestFailuresNameTheScriptsOwnLines(t *testing.T) {
	if !withImages(t) {
		return
	}
	for _, kind := range []string{"deno", "bun", "node"} {
		for name, c := range map[string]struct{ text, says, at string }{
			"thrown":             {"import 'node:fs'\n\nemit(1)\nfunction f(): never {\n  throw new RangeError('oh no')\n}\nf()\nreturn 1\n", "oh no", "s.ts:5"},
			"thrown in a module": {"\nimport { emit } from 'mcpx'\nemit(1)\nthrow new RangeError('oh no')\n", "oh no", "s.ts:4"},
			"tool's error":       {"emit(1)\n\nawait web.broken()\n", "the page is", "s.ts:3"},
			"syntax":             {"#!/usr/bin/env x\nemit(1)\nconst x = await 1\n\nlet y = = 2\n", "", "s.ts:5"},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				w := newWorld(t)
				got := w.launch(kind, "s.ts", c.text, "")
				require.Equal(t, 1, got.code)
				require.Contains(t, got.stderr, c.says)
				require.Contains(t, got.stderr, c.at)
				if name != "syntax" {
					require.Equal(t, []string{"1"}, w.emits)
				}
			})
		}
	}
}
