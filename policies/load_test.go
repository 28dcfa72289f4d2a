package policies_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/images"
	"mcpx/policies"
)

func TestBuiltinDocument(t *testing.T) {
	doc := policies.Default()
	require.Empty(t, doc.Warnings)
	for _, name := range []string{"sh", "bash", "python3", "node", "deno", "bun", "ruby", "perl", "php", "lua", "data", "browser"} {
		r, ok := doc.Rule(name)
		require.True(t, ok, name)
		require.Equal(t, "mcpx/"+name, r.Image)
		require.Equal(t, "65532:65532", r.User)
		require.Equal(t, "never", r.Pull)
		require.Equal(t, "none", r.Network)
		require.NotEmpty(t, r.Ext)
		for _, reason := range r.Effective() {
			if reason.Why == "not set" {
				require.Contains(t, []string{"kind", "argv", "aliases", "extensions"}, reason.Field, name)
			}
		}
	}
	r, _ := doc.Rule("python3")
	require.Equal(t, int64(512<<20), r.MemoryBytes)
	require.Equal(t, 1.0, r.CPUs)
	require.Equal(t, int64(128), r.Pids)
	require.Equal(t, int64(1024), r.NoFile)
	require.Equal(t, int64(64<<20), r.ShmBytes)
	require.Equal(t, time.Minute, r.Timeout)
	require.Equal(t, 10*time.Minute, r.TimeoutMax)
	require.Equal(t, 2*time.Second, r.Grace)
	require.Equal(t, int64(8<<20), r.OutputKeep)
	require.Equal(t, int64(128<<20), r.OutputLimit)
	require.Equal(t, []int64{64 << 20, 64 << 20, 64 << 20}, []int64{r.TmpBytes, r.WorkBytes, r.OutboxBytes})
	require.Equal(t, 1000, r.OutboxFiles)
	require.Empty(t, r.MountsAllow)
}

func TestBuiltinCatalogDispatches(t *testing.T) {
	c := policies.Default().Catalog()
	for file, want := range map[string]string{"a.py": "python3", "a.sh": "bash", "a.ts": "deno", "a.js": "node", "a.rb": "ruby", "a.pl": "perl", "a.php": "php", "a.lua": "lua", "a": "deno"} {
		choice, err := images.Choose(images.Facts{FileName: file}, c)
		require.NoError(t, err)
		require.Equal(t, want, choice.Interpreter.Name, file)
	}
	choice, err := images.Choose(images.Facts{Runtime: "data"}, c)
	require.NoError(t, err)
	require.Equal(t, "python3", choice.Interpreter.Kind)
	require.Equal(t, []string{"python3"}, choice.Argv)
}

const alone = `
version: 1
interpreters:
  tcl:
    image: site/tcl
`

func TestDocumentAloneHasOnlyItsOwnRules(t *testing.T) {
	doc, err := policies.Parse("/etc/mcpx/site.yaml", []byte(alone))
	require.NoError(t, err)
	require.Equal(t, "site.yaml", doc.Name)
	require.Equal(t, []string{"tcl"}, doc.Catalog().Names())
	require.Empty(t, doc.Catalog().Default)
	r, _ := doc.Rule("tcl")
	require.Equal(t, []string{"tcl"}, r.Argv)
	require.Equal(t, "tcl", r.Kind)
	require.Equal(t, int64(512<<20), r.MemoryBytes, "unset values are the built-in defaults")
}

func TestLayersOverlayInOrder(t *testing.T) {
	doc, err := policies.Parse("site.yaml", []byte(`
version: 1
extends: builtin
defaults:
  memory: 600MiB
  pids: 99
  output:
    keep: 1MiB
interpreters:
  python3:
    pids: 100
    argv: [python3, -I]
  tcl:
    image: site/tcl
order: [node]
`))
	require.NoError(t, err)
	python, _ := doc.Rule("python3")
	require.Equal(t, int64(100), python.Pids, "the document's rule")
	require.Equal(t, int64(600<<20), python.MemoryBytes, "the document's defaults")
	require.Equal(t, int64(1<<20), python.OutputKeep)
	require.Equal(t, int64(128<<20), python.OutputLimit, "a group is merged by key")
	require.Equal(t, "mcpx/python3", python.Image, "the built-in rule")
	require.Equal(t, []string{"python3", "-I"}, python.Argv)
	data, _ := doc.Rule("data")
	require.Equal(t, int64(1<<30), data.MemoryBytes, "a built-in rule is nearer than the document's defaults")
	tcl, _ := doc.Rule("tcl")
	require.Equal(t, int64(99), tcl.Pids)
	require.Equal(t, []string{"node"}, doc.Catalog().Default)
	why := map[string]string{}
	for _, reason := range python.Effective() {
		why[reason.Field] = reason.Why
	}
	require.Equal(t, "site.yaml:11 interpreters.python3", why["pids"])
	require.Equal(t, "site.yaml:5 defaults", why["memory"])
	require.Regexp(t, `^builtin:\d+ interpreters.python3$`, why["image"])
	require.Regexp(t, `^builtin:\d+ defaults$`, why["user"])
}

func TestEveryProblemIsListedWithItsPlace(t *testing.T) {
	_, err := policies.Parse("/x/bad.yaml", []byte(`version: 2
extends: mine
colour: red
defaults:
  image: a/b
  memory: 64M
  cpu: 0
  timeout: 60
  output: {keep: -1, lines: 3}
  env: [A]
interpreters:
  Python3:
    image: "Bad Ref"
  sh:
    image: a/sh
    memory: much
    user: root
    pull: always
    network: host
    argv: []
    aliases: [a b]
    mounts:
      allow:
        - {path: /, writable: false}
    env: {set: {MCPX_RUN: x}}
    "output.keep": 1MiB
    tmp:
`))
	var load *policies.LoadError
	require.ErrorAs(t, err, &load)
	require.ErrorIs(t, err, errdefs.ErrInvalidArgument)
	got := strings.Split(err.Error(), "\n")
	want := []string{
		"/x/bad.yaml:1:10: version: this mcpx reads version 1",
		`/x/bad.yaml:2:10: extends: "mine" is unknown`,
		`/x/bad.yaml:3:1: unknown key "colour"`,
		"/x/bad.yaml:5:3: defaults.image: describes one interpreter",
		`/x/bad.yaml:6:11: defaults.memory: "64M" is not a size`,
		"/x/bad.yaml:7:8: defaults.cpu: must be between",
		"/x/bad.yaml:8:12: defaults.timeout: expected a duration",
		"/x/bad.yaml:9:18: defaults.output.keep: must be at least 0",
		"/x/bad.yaml:9:22: defaults.output.lines: unknown key; known are",
		"/x/bad.yaml:10:8: defaults.env: expected a mapping, found a list",
		`/x/bad.yaml:12:3: interpreters.Python3: "Python3" is not a lower-case name`,
		"/x/bad.yaml:13:12: interpreters.Python3.image: image \"Bad Ref\"",
		`/x/bad.yaml:16:13: interpreters.sh.memory: "much" is not a size`,
		`/x/bad.yaml:17:11: interpreters.sh.user: "root" is not "uid:gid"`,
		`/x/bad.yaml:18:11: interpreters.sh.pull: "always" is unknown; one of never, missing`,
		`/x/bad.yaml:19:14: interpreters.sh.network: "host" is unknown; one of none`,
		"/x/bad.yaml:20:11: interpreters.sh.argv: needs the program",
		`/x/bad.yaml:21:14: interpreters.sh.aliases: "a b" is not a name`,
		"/x/bad.yaml:24:9: interpreters.sh.mounts.allow: item 1: path / is the whole machine",
		"/x/bad.yaml:25:16: interpreters.sh.env.set: MCPX_RUN is set by mcpx itself",
		"/x/bad.yaml:26:5: interpreters.sh.output.keep: unknown key",
		"/x/bad.yaml:27:5: interpreters.sh.tmp: expected a size such as 64MiB, found nothing",
	}
	require.Len(t, got, len(want), err.Error())
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("line %d:\n got %s\nwant %s", i, got[i], want[i])
		}
	}
}

func TestOneProblemEach(t *testing.T) {
	rule := func(text string) string {
		return "version: 1\ninterpreters:\n  sh:\n    image: a/sh\n    " + text + "\n"
	}
	for name, c := range map[string]struct{ doc, says string }{
		"empty":               {"", "1:1: the document is empty"},
		"only a comment":      {"# x\n", "the document is empty"},
		"a list":              {"- a\n", "expected a mapping"},
		"no version":          {"interpreters: {sh: {image: a/sh}}\n", "version: is missing"},
		"no interpreter":      {"version: 1\n", "no interpreter"},
		"two documents":       {alone + "---\n" + alone, "several documents"},
		"broken":              {"version: 1\na: [\n", "2:4: sequence end token"},
		"key twice":           {"version: 1\nversion: 1\n", "2:1: mapping key"},
		"anchor":              {rule("memory: &m 64MiB"), "an anchor"},
		"merge key":           {rule("<<: {memory: 64MiB}"), "found an anchor"},
		"tag":                 {rule("memory: !!str 64MiB"), "a tag"},
		"key is a number":     {rule("1: x"), "expected a key, found a number"},
		"NUL":                 {rule(`argv: ["a\0"]`), "NUL byte"},
		"number in argv":      {rule("argv: [a, 1]"), "item 2: expected text; put it in quotes"},
		"size overflows":      {rule("memory: 9999999999TiB"), "too large a size"},
		"number overflows":    {rule("pids: 99999999999999999999"), "pids"},
		"cpu infinite":        {rule("cpu: .inf"), "expected a number"},
		"cpu NaN":             {rule("cpu: .nan"), "expected a number"},
		"tiny memory":         {rule("memory: 1KiB"), "must be at least 8MiB"},
		"one process":         {rule("pids: 1"), "must be at least 2"},
		"timeout zero":        {rule("timeout: 0s"), "must be at least 1ms"},
		"timeout over max":    {rule("timeout: 11m"), "5:5: interpreters.sh.timeout: timeout, 11m0s, is above timeoutMax, 10m0s"},
		"keep over limit":     {rule("output: {limit: 1MiB}"), "5:14: interpreters.sh.output.limit: keep, 8MiB, is above limit, 1MiB"},
		"relative mount":      {rule("mounts: {allow: [{path: srv}]}"), "not absolute"},
		"unclean mount":       {rule("mounts: {allow: [{path: /srv/../etc}]}"), "not absolute and clean"},
		"mount of a socket":   {rule("mounts: {allow: [{path: /var/run/docker.sock}]}"), "hand over the machine"},
		"mount key":           {rule("mounts: {allow: [{dir: /srv}]}"), `unknown key "dir"`},
		"mount without path":  {rule("mounts: {allow: [{writable: true}]}"), "not absolute"},
		"mount flag":          {rule(`mounts: {allow: [{path: /srv, writable: "yes"}]}`), "true or false"},
		"env.set name":        {rule(`env: {set: {"A=B": x}}`), "not a variable's name"},
		"env.set number":      {rule(`env: {set: {A: 1}}`), "A: expected text; put it in quotes"},
		"env pattern":         {rule(`env: {allow: ["a-b"]}`), "a variable's name"},
		"image of defaults":   {"version: 1\ndefaults: {image: a/b}\ninterpreters: {sh: {image: a/sh}}\n", "cannot stand in defaults"},
		"rule without image":  {"version: 1\ninterpreters:\n  sh: {pids: 3}\n", "3:3: interpreters.sh.image: interpreters.sh has no image"},
		"rule is nothing":     {"version: 1\ninterpreters:\n  sh:\n", "interpreters.sh: expected a mapping, found nothing"},
		"interpreters a list": {"version: 1\ninterpreters: [sh]\n", "expected a mapping of names"},
		"order unknown":       {rule("pids: 9") + "order: [deno]\n", `"deno" has no rule`},
		"alias is a name":     {rule("aliases: [x]") + "  x: {image: a/x}\n", `"x" is taken by interpreters.x`},
		"alias twice":         {rule("aliases: [y]") + "  x: {image: a/x, aliases: [y]}\n", `"y" is taken by interpreters.sh`},
		"future key":          {rule("egress: {allow: []}"), "interpreters.sh.egress: unknown key"},
		"too long":            {"#" + strings.Repeat("x", 2<<20), "may have 1048576"},
		"too deep":            {"a: " + strings.Repeat("[", 5000), "nested too deeply"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policies.Parse("p.yaml", []byte(c.doc))
			require.Error(t, err)
			require.Contains(t, err.Error(), c.says)
		})
	}
}

func TestWarningsDoNotKeepADocumentFromWorking(t *testing.T) {
	for name, c := range map[string]struct{ rule, says string }{
		"memory below its files": {"memory: 200MiB", "charged to memory"},
		"node without threads":   {"kind: node\n    pids: 7", "needs at least 8"},
		"root":                   {`user: "0:0"`, "root of their container"},
	} {
		t.Run(name, func(t *testing.T) {
			text := alone + "    " + c.rule + "\n"
			doc, err := policies.Parse("p.yaml", []byte(text))
			require.NoError(t, err)
			require.Len(t, doc.Warnings, 1)
			require.Equal(t, policies.SeverityWarning, doc.Warnings[0].Severity)
			require.Contains(t, doc.Warnings[0].String(), c.says)
			require.Equal(t, doc.Warnings, policies.Check([]byte(text)))
		})
	}
}

func TestAValueOfTheDefaultsIsJudgedOnce(t *testing.T) {
	list := policies.Check([]byte("version: 1\nextends: builtin\ndefaults:\n  memory: 100MiB\n"))
	require.Len(t, list, 1)
	require.Equal(t, "defaults.memory", list[0].Field)
	require.Equal(t, 4, list[0].Line)
}

func TestLoadReadsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site.yaml")
	require.NoError(t, os.WriteFile(path, []byte(alone), 0o600))
	doc, err := policies.Load(path)
	require.NoError(t, err)
	require.Equal(t, "site.yaml", doc.Name)
	_, err = policies.Load(path + ".not")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("version: 3\n"), 0o600))
	_, err = policies.Load(path)
	require.Contains(t, err.Error(), path+":1:10: version:")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(alone))
	f.Add([]byte(policies.BuiltinText()))
	f.Add([]byte("version: 1\ndefaults: &a {memory: *a}\n"))
	f.Add([]byte("a: !!x [{? : -}]\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := policies.Parse("p.yaml", data)
		if err != nil {
			var load *policies.LoadError
			if !errors.As(err, &load) || len(load.Problems) == 0 {
				t.Fatalf("%v", err)
			}
			for _, p := range load.Problems {
				if p.Line < 1 || p.Column < 0 || p.Message == "" {
					t.Fatalf("%+v", p)
				}
			}
			return
		}
		for _, r := range doc.Rules() {
			if _, err := doc.Evaluate(policies.Facts{Interpreter: r.Name}); err != nil {
				t.Fatalf("%s: %v", r.Name, err)
			}
		}
	})
}

func TestFileThatIsCalledBuiltinIsAFile(t *testing.T) {
	doc, err := policies.Parse("builtin", []byte(alone))
	require.NoError(t, err)
	r, _ := doc.Rule("tcl")
	require.Equal(t, int64(512<<20), r.MemoryBytes)
	doc, err = policies.Parse("copy.yaml", []byte(policies.BuiltinText()))
	require.NoError(t, err)
	require.Equal(t, policies.Default().Catalog(), doc.Catalog(), "the built-in text is a document like any other")
}
