package client_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/client"
	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/tool"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	at := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, got, 0o644))
	}
	want, err := os.ReadFile(at)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// everything is a client with its declarations.
func everything(t *testing.T, lang string, all []tool.Server) []engine.File {
	t.Helper()
	files, err := client.Files(lang, all, nil)
	require.NoError(t, err)
	types, err := client.Types(lang, all, nil)
	require.NoError(t, err)
	return append(files, types...)
}

func contentOf(t *testing.T, files []engine.File, name string) []byte {
	t.Helper()
	for _, f := range files {
		if f.Path == name {
			return f.Data
		}
	}
	require.Failf(t, "no such file", "%s", name)
	return nil
}

// What is generated, beside the fixed heads, for kind and for hostile servers.
func TestGenerated(t *testing.T) {
	for catalogue, all := range map[string][]tool.Server{"small": servers(), "hostile": {hostile()}} {
		for lang, names := range map[string][]string{
			client.TypeScript: {"client/mcpx.d.ts", "client/globals.d.ts", "client/index.js"},
			client.Python:     {"client/python/mcpx/__init__.pyi", "client/python/mcpx/index.json"},
		} {
			for _, name := range names {
				got := contentOf(t, everything(t, lang, all), name)
				for _, mark := range []string{"/** The servers' tools", "\ninput: _Input\n"} {
					if i := bytes.Index(got, []byte(mark)); i >= 0 {
						got = got[i:]
					}
				}
				golden(t, path.Join(catalogue, path.Base(name)+".golden"), got)
			}
		}
	}
}

func TestFilesAreTheSameEachTime(t *testing.T) {
	for _, lang := range []string{client.TypeScript, client.Python, client.Shell} {
		first := everything(t, lang, append(servers(), hostile()))
		again := everything(t, lang, append([]tool.Server{hostile()}, servers()...))
		require.Equal(t, first, again)
		for _, f := range first {
			require.True(t, strings.HasPrefix(f.Path, "client/"), f.Path)
			require.EqualValues(t, 0o444, f.Mode)
		}
	}
}

func TestFilesHaveTheNamespacesThatAreAskedFor(t *testing.T) {
	for _, ns := range []string{"web", "web/1"} {
		files, err := client.Files(client.Python, servers(), []string{ns})
		require.NoError(t, err)
		var index map[string]any
		require.NoError(t, json.Unmarshal(contentOf(t, files, "client/python/mcpx/index.json"), &index))
		require.Len(t, index, 1)
		require.Contains(t, index, "web")
	}
}

func TestLanguages(t *testing.T) {
	for kind, want := range map[string]string{"deno": client.TypeScript, "bun": client.TypeScript, "node": client.TypeScript, "python3": client.Python, "sh": client.Shell, "bash": client.Shell} {
		lang, ok := client.Lang(kind)
		require.True(t, ok)
		require.Equal(t, want, lang)
		files, err := client.Files(lang, servers(), nil)
		require.NoError(t, err)
		at := client.Env(lang)["MCPX_CLIENT"]
		found := false
		for _, f := range files {
			found = found || strings.HasPrefix(path.Join(engine.JobDir, f.Path), at)
		}
		require.True(t, found, at)
	}
	_, ok := client.Lang("lua")
	require.False(t, ok)
	require.Nil(t, client.Env("lua"))
	for _, make := range []func(string, []tool.Server, []string) ([]engine.File, error){client.Files, client.Types} {
		_, err := make("lua", nil, nil)
		require.ErrorContains(t, err, `no client for language "lua"`)
	}
}

// parses tells whether esbuild takes a text for TypeScript.
func parses(text []byte) error {
	got := api.Transform(string(text), api.TransformOptions{Loader: api.LoaderTS, LogLevel: api.LogLevelSilent})
	for _, e := range got.Errors {
		return &syntaxError{e}
	}
	if strings.Contains(string(got.Code), "bad = 1") {
		return &syntaxError{api.Message{Text: "a description became code"}}
	}
	return nil
}

type syntaxError struct{ api.Message }

func (e *syntaxError) Error() string {
	if e.Location == nil {
		return e.Text
	}
	return e.Text + ": " + e.Location.LineText
}

func FuzzDeclarations(f *testing.F) {
	for _, a := range awkward {
		f.Add(a.schema, "*/ export const bad = 1; /*")
	}
	f.Fuzz(func(t *testing.T, schema, description string) {
		made := tool.Tool{Server: "s", Name: "f", Namespace: "s", Function: "f", Description: description,
			InputSchema: json.RawMessage(schema), OutputSchema: json.RawMessage(schema)}
		files := everything(t, client.TypeScript, []tool.Server{{Name: "s", Namespace: "s", Description: description, Tools: []tool.Tool{made}}})
		for _, f := range files {
			if strings.HasSuffix(f.Path, ".ts") || strings.HasSuffix(f.Path, ".js") {
				require.NoError(t, parses(f.Data), "%s", f.Path)
			}
			require.Less(t, len(f.Data), 64<<10+40*(len(schema)+len(description)))
		}
		everything(t, client.Python, []tool.Server{{Name: "s", Namespace: "s", Tools: []tool.Tool{made}}})
	})
}

func FuzzLaunch(f *testing.F) {
	for _, text := range []string{snippet, "import a from 'x'\nreturn a", "export default 1", "import {'a' as b} from \"x\" with {type:'json'};;return", "\xef\xbb\xbf#!x\nreturn"} {
		f.Add(text)
	}
	p := newParser(f, time.Second)
	f.Fuzz(func(t *testing.T, text string) {
		launched, ok, err := p.Launch(t.Context(), ask(text))
		if err == nil && ok {
			// One line more for the brace that ends a function.
			require.InDelta(t, strings.Count(text, "\n")+1, strings.Count(string(launched.Text), "\n"), 1)
		}
	})
}

// A schema that doubles with every step stays small.
func TestSchemasAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{`)
	for i := range 40 {
		b.WriteString(`"d` + string(rune('0'+i%10)) + strings.Repeat("x", i/10) + `":{"anyOf":[` + strings.Repeat(`{"properties":{"p":{"anyOf":[{},{"type":"array","items":{"enum":["a","b"]}}]}}},`, 300) + `{}]},`)
	}
	b.WriteString(`"end":{}}}`)
	deep := strings.Repeat(`{"items":`, 900) + `{}` + strings.Repeat(`}`, 900)
	wide := `{"properties":{"p":{"type":"object"}` + strings.Repeat(`,"p`+strings.Repeat("x", 20)+`":{"type":"string"}`, 5000) + `}}`
	for name, schema := range map[string]string{"choices": b.String(), "deep": deep, "wide": wide} {
		t.Run(name, func(t *testing.T) {
			made := tool.Tool{Server: "s", Name: "f", Namespace: "s", Function: "f", InputSchema: json.RawMessage(schema)}
			files := everything(t, client.TypeScript, []tool.Server{{Name: "s", Namespace: "s", Tools: []tool.Tool{made}}})
			got := contentOf(t, files, "client/mcpx.d.ts")
			require.Less(t, len(got), 256<<10)
			require.NoError(t, parses(got))
		})
	}
}

const usesTypes = `/// <reference path="./client/globals.d.ts" />
import { tools, ToolError, type CallToolResult } from "./client/mcpx.js";

const shot = await tools.web.shot({ format: "png", full: true });
await tools.web.shot();
const r = await tools.web.go_to({ url: "x", class: "y" });
const got: object = r.got;
const raw: CallToolResult = r.raw;
const envelope: CallToolResult = await tools.web.go_to.raw({ url: "x" });
// @ts-expect-error a value that is not in the enum
await tools.web.shot({ format: "gif" });
// @ts-expect-error a property that is missing
await tools.web.go_to({});
// @ts-expect-error a property that there is not
await tools.web.go_to({ url: "x", other: 1 });
// @ts-expect-error a tool that there is not
await tools.web.nope();
await tools.dark.whatever({ a: 1 });

await tools.evil.f_enum({ a: 'y"z' });
await tools.evil.f_const({ kind: "circle", n: null });
await tools.evil.f_nullable({ a: null, b: null, c: 1 });
await tools.evil.f_one_of({ name: "x" });
// @ts-expect-error neither of the two
await tools.evil.f_one_of({ other: "x" });
await tools.evil.f_all_of({ a: true, b: ["x", 1] });
await tools.evil.f_tree({ root: { value: 1, children: [{ children: [] }] } });
// @ts-expect-error wrong far down
await tools.evil.f_tree({ root: { children: [{ children: 3 }] } });
await tools.evil.f_self({ next: { next: {} } });
await tools.evil.f_circle({ a: "x" });
await tools.evil.f_tuple({ new: [1, null], old: [1, "x", true], open: ["x", 3] });
// @ts-expect-error too long
await tools.evil.f_tuple({ new: [1, null, 3] });
await tools.evil.f_maps({ a: { x: 1 }, c: { x: "", y: 3 }, d: { "x-a": "b" } });
await tools.evil.f_odd_names({ "a-b": "", a_b: "", "1x": "", "": "", class: "", undeclared: 1, "ключ": "" });
try {
  await web.shot();
} catch (e) {
  if (e instanceof ToolError) emit([e.server, e.tool, e.raw?.content, e.diagnostics.code, got, raw, envelope, shot]);
}
log.info("x", 1);
await artifact("x", shot);
result({ ok: true });
input.text("x").then((text: string) => text);
`

func TestDenoChecksTheTypes(t *testing.T) {
	if !withImages(t) {
		return
	}
	w := newWorld(t)
	w.client(client.TypeScript, append(servers(), hostile()))
	w.types(client.TypeScript, append(servers(), hostile()))
	w.place(engine.File{Path: "uses.ts", Mode: 0o444, Data: []byte(usesTypes)})
	got := w.inImage("mcpx/deno", nil, "deno", "check", "--all", engine.JobDir+"/uses.ts", engine.JobDir+"/client/mcpx.d.ts", engine.JobDir+"/client/globals.d.ts")
	require.Equal(t, 0, got.code, got.stderr)
}

func BenchmarkFiles(b *testing.B) {
	all := large(50, 40)
	for _, lang := range []string{client.TypeScript, client.Python} {
		b.Run(lang, func(b *testing.B) {
			for b.Loop() {
				_, err := client.Files(lang, all, nil)
				require.NoError(b, err)
			}
		})
		b.Run(lang+", types", func(b *testing.B) {
			for b.Loop() {
				_, err := client.Types(lang, all, nil)
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkLaunch(b *testing.B) {
	all := large(50, 40)
	for b.Loop() {
		_, _, err := client.Launch(client.LaunchRequest{Kind: "deno", ScriptName: "s.ts", Text: []byte(snippet), Servers: all})
		require.NoError(b, err)
	}
}
