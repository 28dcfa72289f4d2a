package images_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/images"
	"mcpx/orchestrator/run"
)

func TestChooseInTheOrderOfTheWire(t *testing.T) {
	for name, c := range map[string]struct {
		facts  images.Facts
		argv   string
		script string
		warns  string
	}{
		"shebang first":             {images.Facts{Text: []byte("#!/usr/bin/env ruby\n"), Runtime: "ruby", Setting: "python3", FileName: "x.py"}, "ruby", "x.py.rb", ""},
		"its arguments replace":     {images.Facts{Text: []byte("#!/usr/bin/env -S deno run --allow-net\n")}, "deno run --allow-net", "main.ts", ""},
		"without them the policy's": {images.Facts{Text: []byte("#!/usr/bin/env deno\n")}, "deno run --no-prompt -A", "main.ts", ""},
		"a version is the image's":  {images.Facts{Text: []byte("#!/usr/bin/python3.11 -u\n")}, "python3 -u", "main.py", ""},
		"env's words stay":          {images.Facts{Text: []byte("#!/usr/bin/env -S A=1 python3 -u\n")}, "env A=1 python3 -u", "main.py", ""},
		"a program under its image": {images.Facts{Runtime: "data -u"}, "python3 -u", "main.py", ""},
		"shebang beats runtime":     {images.Facts{Text: []byte("#!/usr/bin/env python3\n"), Runtime: "bash"}, "python3", "main.py", "shebang_overrides_runtime"},
		"also its arguments":        {images.Facts{Text: []byte("#!/usr/bin/env python3\n"), Runtime: "python3 -u"}, "python3", "main.py", "shebang_overrides_runtime"},
		"also an unknown one":       {images.Facts{Text: []byte("#!/usr/bin/env python3\n"), Runtime: "nosuch"}, "python3", "main.py", "shebang_overrides_runtime"},
		"an alias agrees":           {images.Facts{Text: []byte("#!/usr/bin/env python3\n"), Runtime: "python"}, "python3", "main.py", ""},
		"auto is none":              {images.Facts{Text: []byte("#!/usr/bin/env python3\n"), Runtime: "auto"}, "python3", "main.py", ""},
		"runtime second":            {images.Facts{Runtime: "bash", Setting: "python3", FileName: "x.py"}, "bash", "x.py.sh", ""},
		"runtime as command line":   {images.Facts{Runtime: ` python3  -X "a b" `}, "python3 -X a b", "main.py", ""},
		"runtime as path":           {images.Facts{Runtime: "/usr/bin/python"}, "python3", "main.py", ""},
		"setting third":             {images.Facts{Setting: "python3 -u", FileName: "x.rb"}, "python3 -u", "x.rb.py", ""},
		"extension fourth":          {images.Facts{FileName: "x.rb"}, "ruby", "x.rb", ""},
		"extension in capitals":     {images.Facts{FileName: "X.PY"}, "python3", "X.PY", ""},
		"default last":              {images.Facts{FileName: "x.unknown"}, "deno run --no-prompt -A", "x.unknown.ts", ""},
		"nothing at all":            {images.Facts{}, "deno run --no-prompt -A", "main.ts", ""},
		"only #!":                   {images.Facts{Text: []byte("#!")}, "deno run --no-prompt -A", "main.ts", ""},
		"mcpx as interpreter":       {images.Facts{Text: []byte("#!/usr/bin/env -S mcpx run\n"), Runtime: "python3"}, "python3", "main.py", ""},
		"mcpx and nothing else":     {images.Facts{Text: []byte("#!/usr/bin/env -S mcpx run\n")}, "deno run --no-prompt -A", "main.ts", ""},
		"mcpx and an extension":     {images.Facts{Text: []byte("#!/usr/local/bin/mcpx\n"), FileName: "a.rb"}, "ruby", "a.rb", ""},
		"CRLF shell":                {images.Facts{Text: []byte("#!/bin/bash\r\necho\r\n")}, "bash", "main.sh", "crlf"},
		"CRLF without shebang":      {images.Facts{Text: []byte("echo\r\n"), Runtime: "sh"}, "sh", "main.sh", "crlf"},
		"CRLF python with shebang":  {images.Facts{Text: []byte("#!/usr/bin/python3\r\n")}, "python3", "main.py", "crlf"},
		"CRLF python without":       {images.Facts{Text: []byte("print()\r\n"), Runtime: "python3"}, "python3", "main.py", ""},
		"node keeps .js":            {images.Facts{Runtime: "node", FileName: "a.js"}, "node --flag", "a.js", ""},
		"deno keeps .mjs":           {images.Facts{Runtime: "deno", FileName: "a.mjs"}, "deno run --no-prompt -A", "a.mjs", ""},
		"node gets .ts":             {images.Facts{Runtime: "node"}, "node --flag", "main.ts", ""},
		"names that are not files":  {images.Facts{Runtime: "bash", FileName: "-rf"}, "bash", "main.sh", ""},
		"dot file":                  {images.Facts{Runtime: "bash", FileName: ".x.sh"}, "bash", "main.sh", ""},
		"letters of any kind":       {images.Facts{FileName: "测试.py"}, "python3", "测试.py", ""},
		"endless name":              {images.Facts{FileName: strings.Repeat("x", 300) + ".py"}, "python3", "main.py", ""},
		"name with a slash":         {images.Facts{FileName: "../x.py"}, "python3", "main.py", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := images.Choose(c.facts, stock())
			require.NoError(t, err)
			require.Equal(t, c.argv, strings.Join(got.Argv, " "))
			require.Equal(t, c.script, got.ScriptName)
			require.Equal(t, c.warns, codes(got.Warnings))
			require.NotEmpty(t, got.Why)
		})
	}
}

func codes(logs []run.Log) string {
	var list []string
	for _, l := range logs {
		list = append(list, l.Code)
	}
	return strings.Join(list, " ")
}

func TestDefaultIsTheFirstThatEnforces(t *testing.T) {
	c := stock()
	got, err := images.Choose(images.Facts{Permissions: "strict"}, c)
	require.NoError(t, err)
	require.Equal(t, "deno", got.Interpreter.Name, "nobody can: the policy refuses the first")
	for i := range c.Interpreters {
		if c.Interpreters[i].Name == "node" {
			c.Interpreters[i].Permissions = []string{"strict"}
		}
	}
	got, err = images.Choose(images.Facts{Permissions: "strict"}, c)
	require.NoError(t, err)
	require.Equal(t, "node", got.Interpreter.Name)
}

func TestChoiceDoesNotShareThePolicysArgv(t *testing.T) {
	c := stock()
	got, err := images.Choose(images.Facts{Runtime: "deno"}, c)
	require.NoError(t, err)
	got.Argv[0] = "changed"
	again, err := images.Choose(images.Facts{Runtime: "deno"}, c)
	require.NoError(t, err)
	require.Equal(t, "deno", again.Argv[0])
}

func TestRefusedChoices(t *testing.T) {
	for name, c := range map[string]struct {
		facts   images.Facts
		catalog images.Catalog
		code    string
		field   string
		says    string
	}{
		"unknown in shebang":   {images.Facts{Text: []byte("#!/usr/bin/env nosuchlang\n")}, stock(), run.CodeUnknownInterpreter, "source", "bash, data, deno, lua, node, perl, python3, ruby, sh"},
		"unknown in runtime":   {images.Facts{Runtime: "nosuchlang"}, stock(), run.CodeUnknownInterpreter, "options.runtime", `"nosuchlang"`},
		"unknown in setting":   {images.Facts{Setting: "nosuchlang -x"}, stock(), run.CodeUnknownInterpreter, "script.interpreter", `"nosuchlang"`},
		"python2":              {images.Facts{Text: []byte("#!/usr/bin/python2\n")}, stock(), run.CodeUnknownInterpreter, "source", `"python2"`},
		"no default":           {images.Facts{}, images.Catalog{}, run.CodeUnknownInterpreter, "options.runtime", "no policy has a default"},
		"command substitution": {images.Facts{Runtime: "python3 $(id)"}, stock(), run.CodeInvalidOption, "options.runtime", "'$'"},
		"in quotes":            {images.Facts{Runtime: `python3 "$(id)"`}, stock(), run.CodeInvalidOption, "options.runtime", "'$'"},
		"backtick":             {images.Facts{Runtime: "python3 `id`"}, stock(), run.CodeInvalidOption, "options.runtime", "'`'"},
		"two commands":         {images.Facts{Runtime: "python3; id"}, stock(), run.CodeInvalidOption, "options.runtime", "';'"},
		"redirection":          {images.Facts{Runtime: "python3 >x"}, stock(), run.CodeInvalidOption, "options.runtime", "'>'"},
		"process substitution": {images.Facts{Runtime: "python3 <(id)"}, stock(), run.CodeInvalidOption, "options.runtime", "'<'"},
		"two lines":            {images.Facts{Runtime: "python3\nid"}, stock(), run.CodeInvalidOption, "options.runtime", `'\n'`},
		"open quote":           {images.Facts{Runtime: `python3 "a`}, stock(), run.CodeInvalidOption, "options.runtime", "not closed"},
		"NUL":                  {images.Facts{Runtime: "python3 a\x00"}, stock(), run.CodeInvalidOption, "options.runtime", "NUL"},
		"too long":             {images.Facts{Runtime: "python3 " + strings.Repeat("x", 5000)}, stock(), run.CodeInvalidOption, "options.runtime", "4096"},
		"no name":              {images.Facts{Runtime: "''"}, stock(), run.CodeInvalidOption, "options.runtime", "names no interpreter"},
		"bad setting":          {images.Facts{Setting: "a|b"}, stock(), run.CodeInvalidOption, "script.interpreter", "'|'"},
		"bad runtime, shebang": {images.Facts{Text: []byte("#!/bin/sh\n"), Runtime: "a|b"}, stock(), run.CodeInvalidOption, "options.runtime", "'|'"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := images.Choose(c.facts, c.catalog)
			var known *run.Error
			require.ErrorAs(t, err, &known)
			require.ErrorIs(t, err, errdefs.ErrInvalidArgument)
			require.Equal(t, c.code, known.Code)
			require.Equal(t, c.field, known.Field)
			require.Contains(t, known.Message, c.says)
			require.NotEmpty(t, known.Hint)
		})
	}
}

func TestUnknownInterpreterSaysHowToAddIt(t *testing.T) {
	_, err := images.Choose(images.Facts{Runtime: "ocaml"}, stock())
	var known *run.Error
	require.ErrorAs(t, err, &known)
	require.Contains(t, known.Hint, `interpreters: {"ocaml": {image: IMAGE}}`)
}

func TestNormalize(t *testing.T) {
	for name, c := range map[string]struct {
		text, runtime, want string
	}{
		"shell in CRLF":         {"#!/bin/bash\r\necho hi\r\n", "", "#!/bin/bash\necho hi\n"},
		"without an end":        {"echo a\r\necho b\r", "sh", "echo a\necho b"},
		"one line":              {"echo a\r", "sh", "echo a"},
		"CR that is content":    {"cat <<E\nGET /\r\n\r\nE\n", "bash", "cat <<E\nGET /\r\n\r\nE\n"},
		"lone CR stays":         {"printf 'a\rb'\r\n", "bash", "printf 'a\rb'\n"},
		"python is left":        {"#!/usr/bin/python3\r\nprint(1)\r\n", "", "#!/usr/bin/python3\r\nprint(1)\r\n"},
		"BOM goes":              {"\ufeffprint(1)\n", "python3", "print(1)\n"},
		"BOM and shebang":       {"\ufeff#!/bin/sh\r\n:\r\n", "", "#!/bin/sh\n:\n"},
		"ruby under mcpx":       {"#!/usr/bin/env -S mcpx run\nputs 1", "ruby", "##/usr/bin/env -S mcpx run\nputs 1"},
		"perl under mcpx":       {"#!/usr/bin/mcpx", "perl", "##/usr/bin/mcpx"},
		"perl by its own name":  {"#!/usr/bin/perl -w\n", "", "#!/usr/bin/perl -w\n"},
		"javascript under mcpx": {"#!/usr/bin/mcpx\n1", "deno", "#!/usr/bin/mcpx\n1"},
		"empty":                 {"", "sh", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := []byte(c.text)
			choice, err := images.Choose(images.Facts{Text: text, Runtime: c.runtime}, stock())
			require.NoError(t, err)
			require.Equal(t, c.want, string(images.Normalize(text, choice)))
			require.Equal(t, c.text, string(text), "the caller's text is not touched")
		})
	}
}

func FuzzChoose(f *testing.F) {
	f.Add([]byte("#!/bin/sh\r\n"), "x.py", "python3 -u", "")
	f.Add([]byte(""), "..", `a "b\"c" 'd' \e`, "node")
	f.Fuzz(func(t *testing.T, text []byte, file, runtime, setting string) {
		choice, err := images.Choose(images.Facts{Text: text, FileName: file, Runtime: runtime, Setting: setting}, stock())
		if err != nil {
			var known *run.Error
			if !errors.As(err, &known) || known.Class == nil {
				t.Fatalf("%v", err)
			}
			return
		}
		if strings.ContainsAny(choice.ScriptName, "/\x00") || strings.Trim(choice.ScriptName, ".") == "" || choice.ScriptName[0] == '-' {
			t.Fatalf("script name %q", choice.ScriptName)
		}
		if len(choice.Argv) == 0 || strings.ContainsRune(strings.Join(choice.Argv, ""), 0) {
			t.Fatalf("argv %q", choice.Argv)
		}
		images.Normalize(text, choice)
	})
}
