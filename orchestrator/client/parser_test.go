package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/client"
	"mcpx/orchestrator/run"
)

// asParser is how the tests' own program is told to be a parser.
const asParser = "-as-parser"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asParser {
		if err := client.ServeParser(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func newParser(t testing.TB, timeout time.Duration) *client.Parser {
	t.Helper()
	p := client.NewParser(client.ParserConfig{Command: []string{os.Args[0], asParser}, Timeout: timeout})
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func ask(text string) client.LaunchRequest {
	return client.LaunchRequest{Kind: "deno", ScriptName: "s.ts", Text: []byte(text), Servers: servers(), CaptureConsole: true}
}

func TestParserAnswersAsLaunchDoes(t *testing.T) {
	p := newParser(t, 0)
	var all sync.WaitGroup
	for _, text := range []string{snippet, "console.log(1)", "import 'mcpx'", "export const x = 1\nreturn x", "let x: = emit()"} {
		all.Go(func() {
			launched, ok, err := client.Launch(ask(text))
			got, gotOK, gotErr := p.Launch(t.Context(), ask(text))
			if gotOK != ok {
				t.Errorf("%q: ok is %t", text, gotOK)
			}
			if fmt.Sprint(gotErr) != fmt.Sprint(err) {
				t.Errorf("%q: error is %v", text, gotErr)
			}
			if string(got.Text) != string(launched.Text) || got.Entry != launched.Entry || len(got.Files) != len(launched.Files) {
				t.Errorf("%q: %+v", text, got)
			}
		})
	}
	all.Wait()
}

// What holds up or breaks a parser is refused, and the next script is served.
func TestParserSurvivesItsScripts(t *testing.T) {
	p := newParser(t, 2*time.Second)
	for name, text := range map[string]string{
		"endless": "emit(" + strings.Repeat("a?(b):c=>", 64),
		"deep":    "emit" + strings.Repeat("(", 4<<20),
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			_, ok, err := p.Launch(t.Context(), ask(text))
			require.False(t, ok)
			known, is := errors.AsType[*run.Error](err)
			require.True(t, is, "%v", err)
			require.Contains(t, known.Message, "can't be parsed within")
			require.Less(t, time.Since(began), 20*time.Second)
			_, ok, err = p.Launch(t.Context(), ask("emit(1)"))
			require.NoError(t, err)
			require.True(t, ok)
		})
	}
}

func TestParserEndsWithItsContext(t *testing.T) {
	p := newParser(t, time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, _, err := p.Launch(ctx, ask("emit("+strings.Repeat("a?(b):c=>", 64)))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestParserThatCannotStart(t *testing.T) {
	p := client.NewParser(client.ParserConfig{Command: []string{"/nope/parser"}})
	_, _, err := p.Launch(t.Context(), ask("emit(1)"))
	require.ErrorContains(t, err, "start the parser")
	_, ok, err := p.Launch(t.Context(), client.LaunchRequest{Kind: "python3"})
	require.NoError(t, err)
	require.False(t, ok)
}

func BenchmarkParser(b *testing.B) {
	p := newParser(b, 0)
	for b.Loop() {
		_, _, err := p.Launch(b.Context(), ask(snippet))
		require.NoError(b, err)
	}
}
