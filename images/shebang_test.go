package images_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"mcpx/images"
	"mcpx/orchestrator/run"
)

func TestParseShebang(t *testing.T) {
	for text, want := range map[string]images.Shebang{
		"#!/bin/bash\necho":                           {Interpreter: "bash"},
		"#!/bin/bash\r\necho hi\r\n":                  {Interpreter: "bash", CRLF: true},
		"\ufeff#!/usr/bin/env python3\nx":             {Interpreter: "python3", BOM: true},
		"\ufeff#!/bin/sh\r\n":                         {Interpreter: "sh", BOM: true, CRLF: true},
		"#!/bin/sh":                                   {Interpreter: "sh"},
		"#!/bin/sh\r":                                 {Interpreter: "sh", CRLF: true},
		"#! \t/bin/sh \t-e  \n":                       {Interpreter: "sh", Args: []string{"-e"}},
		"#!/usr/bin/python3 -u -b\n":                  {Interpreter: "python3", Args: []string{"-u", "-b"}},
		"#!/usr/bin/env python3 -u\n":                 {Interpreter: "python3", Args: []string{"-u"}},
		"#!/usr/bin/env -S python3 -u\n":              {Interpreter: "python3", Args: []string{"-u"}},
		"#!/usr/bin/env -S deno run -A\n":             {Interpreter: "deno", Args: []string{"run", "-A"}},
		"#!/usr/bin/env -Sdeno run\n":                 {Interpreter: "deno", Args: []string{"run"}},
		"#!/usr/bin/env --split-string=deno run\n":    {Interpreter: "deno", Args: []string{"run"}},
		"#!/usr/bin/env --split-string deno run\n":    {Interpreter: "deno", Args: []string{"run"}},
		"#!/usr/bin/env -vS node\n":                   {Interpreter: "node"},
		"#!/usr/bin/env -iS node\n":                   {Interpreter: "node", Env: []string{"-i"}},
		"#!/usr/bin/env -S -i -u A -uB X=1 node\n":    {Interpreter: "node", Env: []string{"-i", "-u", "A", "-u", "B", "X=1"}},
		"#!/usr/bin/env -S --unset=A - node\n":        {Interpreter: "node", Env: []string{"-u", "A", "-i"}},
		"#!/usr/bin/env -S -- node\n":                 {Interpreter: "node"},
		"#!/usr/bin/env X=1 node -r x\n":              {Interpreter: "node", Env: []string{"X=1"}, Args: []string{"-r", "x"}},
		`#!/usr/bin/env -S X="a b" perl -e 'a "b"'`:   {Interpreter: "perl", Env: []string{"X=a b"}, Args: []string{"-e", `a "b"`}},
		`#!/usr/bin/env -S a "x\_y\"z" b\_c \\ \t`:    {}, // refused: \_ splits outside of quotes
		`#!/usr/bin/env -S a "x\_y\"z\t" \\`:          {Interpreter: "a", Args: []string{"x y\"z\t", `\`}},
		`#!/usr/bin/perl -e 'a`:                       {Interpreter: "perl", Args: []string{"-e", "'a"}},
		"#!python3\n":                                 {Interpreter: "python3"},
		"#!../venv/bin/python\n":                      {Interpreter: "python"},
		"#!/bin/bash\recho hi\recho there":            {Interpreter: "bash\recho", Args: []string{"hi\recho", "there"}},
		"#!" + strings.Repeat(" ", 4000) + "/bin/sh":  {Interpreter: "sh"},
		"#!/usr/bin/env\tpython3\t-u\n":               {Interpreter: "python3", Args: []string{"-u"}},
		"#!/usr/bin/env -S mcpx run\nconsole.log(1)":  {Interpreter: "mcpx", Args: []string{"run"}},
		"#!/bin/sh\x20\r\n":                           {Interpreter: "sh", CRLF: true},
		"#!/opt/my env/bin\n":                         {Interpreter: "my", Args: []string{"env/bin"}},
		"#!/usr/local/bin/env  -S   ruby   -w   \r\n": {Interpreter: "ruby", Args: []string{"-w"}, CRLF: true},
	} {
		got, ok, err := images.ParseShebang([]byte(text))
		if want.Interpreter == "" {
			require.Error(t, err, text)
			continue
		}
		require.NoError(t, err, text)
		require.True(t, ok, text)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(images.Shebang{}, "Line"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q:\n%s", text, diff)
		}
	}
}

func TestNoShebangIsNoError(t *testing.T) {
	for _, text := range []string{"", "#", "# !/bin/sh", " #!/bin/sh", "\n#!/bin/sh", "#!", "#!\n", "#!\r\n", "#!  \t \necho", "\ufeff", "\ufeff\ufeff#!/bin/sh", "echo"} {
		_, ok, err := images.ParseShebang([]byte(text))
		require.NoError(t, err, "%q", text)
		require.False(t, ok, "%q", text)
	}
}

func TestBadShebangIsTheCallersFault(t *testing.T) {
	for text, why := range map[string]string{
		"#!/bin/" + strings.Repeat("x", 5000): "5007 bytes",
		"#!/bin/sh\x00\n":                     "NUL",
		"#!/usr/bin/env\n":                    "names no interpreter",
		"#!/usr/bin/env -S\n":                 "names no interpreter",
		"#!/usr/bin/env -S X=1\n":             "names no interpreter",
		"#!/usr/bin/env -u\n":                 "env's option",
		"#!/usr/bin/env -C /tmp sh\n":         "env's option",
		"#!/usr/bin/env -S 'a\n":              "not closed",
		"#!/usr/bin/env -S \"a\n":             "not closed",
		"#!/usr/bin/env -S a\\\n":             "backslash",
		"#!/usr/bin/env -S a ${HOME}\n":       "'$'",
		"#!/usr/bin/env -S a \"$HOME\"\n":     "'$'",
		"#!/\n":                               "names no interpreter",
		"#!/bin/..\n":                         "names no interpreter",
	} {
		_, ok, err := images.ParseShebang([]byte(text))
		require.False(t, ok)
		var known *run.Error
		require.ErrorAs(t, err, &known, text)
		require.Equal(t, run.CodeInvalidScript, known.Code)
		require.ErrorIs(t, err, errdefs.ErrInvalidArgument)
		require.Contains(t, known.Message, why)
		require.NotEmpty(t, known.Hint)
	}
}

func FuzzParseShebang(f *testing.F) {
	for _, seed := range []string{"#!/bin/sh", "#!/usr/bin/env -S a 'b' \"c\\\"\" X=1\r\n", "\ufeff#!/usr/bin/env -iS x", "#!\x00", "#!/usr/bin/env --unset=A -- b"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, ok, err := images.ParseShebang(text)
		switch {
		case err != nil:
			var known *run.Error
			if ok || !errors.As(err, &known) || known.Class == nil || len(known.Message) > 400 {
				t.Fatalf("%q: %v", text, err)
			}
		case ok:
			if s.Interpreter == "" || strings.ContainsAny(s.Interpreter, "/\x00\n") {
				t.Fatalf("%q: interpreter %q", text, s.Interpreter)
			}
			for _, word := range append(s.Args, s.Env...) {
				if strings.ContainsRune(word, 0) {
					t.Fatalf("%q: NUL in %q", text, word)
				}
			}
		}
	})
}
