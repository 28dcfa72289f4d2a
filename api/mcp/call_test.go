package mcp_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

func TestLoopFromListingToTypes(t *testing.T) {
	w := newWorld(t)
	session := w.connect("2026-07-28")
	require.Equal(t, "browser (2) Works with browser\n  open close\nfiles (2) Works with files\n  open close", words(t, call(t, session, "mcpx_ls", nil)))
	require.Equal(t, "browser (2) Works with browser\n  open: To open a thing of browser\n  close: To close a thing of browser",
		words(t, call(t, session, "mcpx_ls", object{"ns": "browser"})))
	require.Equal(t, "files.close: To close a thing of files", words(t, call(t, session, "mcpx_search", object{"query": "close files", "limit": 1})))
	require.Equal(t, `declarations of browser in "": [open]`, words(t, call(t, session, "mcpx_types", object{"ns": "browser", "functions": []string{"open"}})))
	for name, args := range map[string]object{
		"mcpx_ls":     {"ns": "nope"},
		"mcpx_types":  {"ns": "nope"},
		"mcpx_search": {"query": "x", "limit": 1000},
		"mcpx_call":   {"ns": "browser"},
	} {
		got := call(t, session, name, args)
		require.True(t, got.IsError, name)
	}
	require.Contains(t, words(t, call(t, session, "mcpx_ls", object{"ns": "nope"})), "hint: there are browser, files")
	require.Contains(t, words(t, call(t, session, "mcpx_search", object{"query": "zzz"})), "nothing found")
}

// With many tools a listing names the namespaces alone.
func TestLongListingIsShort(t *testing.T) {
	w := newWorld(t)
	w.shelf.servers = nil
	for s := range 50 {
		one := tool.Server{Name: fmt.Sprintf("s%d", s), Namespace: fmt.Sprintf("s%d", s), Description: strings.Repeat("long ", 100)}
		for f := range 40 {
			one.Tools = append(one.Tools, tool.Tool{Function: fmt.Sprintf("f%d", f), Description: "does it"})
		}
		w.shelf.servers = append(w.shelf.servers, one)
	}
	text := words(t, call(t, w.connect("2025-11-25"), "mcpx_ls", nil))
	require.Equal(t, 50, strings.Count(text, "\n")+1)
	require.NotContains(t, text, "f1")
	require.Less(t, len(text), 8000)
}

func TestCallAnswersWithTheValue(t *testing.T) {
	w := newWorld(t)
	session := w.connect("2025-11-25")
	for name, c := range map[string]struct {
		raw, want string
		isError   bool
	}{
		"structured": {`{"content":[{"type":"text","text":"{}"}],"structuredContent":{"a":1}}`, `{"a":1}`, false},
		"json text":  {`{"content":[{"type":"text","text":"[1,2]"}]}`, `[1,2]`, false},
		"text":       {`{"content":[{"type":"text","text":"hi"},{"type":"text","text":"you"}]}`, "hi\nyou", false},
		"nothing":    {`{"content":[]}`, "null", false},
		"error":      {`{"content":[{"type":"text","text":"no such page"}],"isError":true}`, "no such page", true},
	} {
		t.Run(name, func(t *testing.T) {
			w.shelf.calls = answers(c.raw)
			got := call(t, session, "mcpx_call", object{"ns": "browser", "fn": "open", "arguments": object{"url": "u"}})
			require.Equal(t, c.want, words(t, got))
			require.Equal(t, c.isError, got.IsError)
			last := w.shelf.seen[len(w.shelf.seen)-1]
			require.Equal(t, "browser", last.Server)
			require.Equal(t, "open", last.Tool)
			require.JSONEq(t, `{"url":"u"}`, string(last.Arguments))
			require.Equal(t, "local", last.Principal)
			require.NotEmpty(t, last.Session)
		})
	}
	w.shelf.calls = func(context.Context, tool.Call) (tool.Result, error) {
		return tool.Result{}, &run.Error{Code: run.CodeInvalidArguments, Field: "url", Message: "a string is wanted", Hint: `{"url":"..."}`, Class: errdefs.ErrInvalidArgument}
	}
	got := call(t, session, "mcpx_call", object{"ns": "browser", "fn": "open"})
	require.True(t, got.IsError)
	require.Equal(t, "invalid_arguments: url: a string is wanted\nhint: {\"url\":\"...\"}", words(t, got))
}

// A 5 MB picture must not go through a model's context.
func TestMediaBecomeArtifacts(t *testing.T) {
	w := newWorld(t)
	session := w.connect("2026-07-28")
	png := []byte("\x89PNG" + strings.Repeat("x", 5<<20))
	block := func(kind string, data []byte) string {
		return fmt.Sprintf(`{"type":"%s","mimeType":"image/png","data":"%s"}`, kind, base64.StdEncoding.EncodeToString(data))
	}
	w.shelf.calls = answers(`{"content":[{"type":"text","text":"taken"},` + block("image", png) + `]}`)
	for _, inline := range []bool{false, true} {
		got := call(t, session, "mcpx_call", object{"ns": "browser", "fn": "open", "inline": inline})
		require.Len(t, got.Content, 2, "too large even for inline")
		text := words(t, got)
		require.Less(t, len(text), 400)
		require.Regexp(t, `^taken\nopen(-1)?\.png, image/png, 5242884 bytes, sha256 [0-9a-f]{64}, mcpx://artifacts/[0-9a-f]{32}$`, text)
		read, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: got.Content[1].(*sdk.ResourceLink).URI})
		require.NoError(t, err)
		require.Equal(t, png, read.Contents[0].Blob)
	}

	w.shelf.calls = answers(`{"content":[` + block("image", png[:9]) + `,{"type":"resource","resource":{"uri":"file:///x/report.pdf","mimeType":"application/pdf","blob":"JVBERg=="}}]}`)
	got := call(t, session, "mcpx_call", object{"ns": "browser", "fn": "open", "inline": true})
	require.Equal(t, png[:9], got.Content[1].(*sdk.ImageContent).Data)
	require.Equal(t, "%PDF", string(got.Content[2].(*sdk.EmbeddedResource).Resource.Blob))
	require.Equal(t, "report.pdf", got.Content[4].(*sdk.ResourceLink).Name)
	got = call(t, session, "mcpx_call", object{"ns": "browser", "fn": "open"})
	require.Len(t, got.Content, 3)
}

func TestLongAnswerBecomesAnArtifact(t *testing.T) {
	w := newWorld(t)
	session := w.connect("2025-11-25")
	long, err := json.Marshal(strings.Fields(strings.Repeat("≤ ", 100_000)))
	require.NoError(t, err)
	w.shelf.calls = answers(`{"content":[],"structuredContent":` + string(long) + `}`)
	got := call(t, session, "mcpx_call", object{"ns": "browser", "fn": "open"})
	text := words(t, got)
	require.Less(t, len(text), 16<<10)
	uri := text[strings.LastIndex(text, "mcpx://") : len(text)-1]
	read, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
	require.NoError(t, err)
	require.JSONEq(t, string(long), read.Contents[0].Text)
	require.Equal(t, "application/json", read.Contents[0].MIMEType)
}

func TestCallIsCancelledAndTellsProgress(t *testing.T) {
	w := newWorld(t)
	ended := make(chan error, 1)
	w.shelf.calls = func(ctx context.Context, c tool.Call) (tool.Result, error) {
		c.Progress(3, 10, "pages")
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return tool.Result{}, ctx.Err()
	}
	told := make(chan string, 100)
	session := w.connect("2026-07-28", func(o *sdk.ClientOptions, _ http.Header) {
		o.ProgressNotificationHandler = func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { told <- r.Params.Message }
	})
	params := &sdk.CallToolParams{Name: "mcpx_call", Arguments: object{"ns": "browser", "fn": "open"}}
	params.SetProgressToken(7)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	go session.CallTool(ctx, params) //nolint:errcheck // it is given up
	require.Contains(t, receive(t, told), "3 of 10 pages")
	cancel()
	require.ErrorIs(t, receive(t, ended), run.ErrClientGone)
}
