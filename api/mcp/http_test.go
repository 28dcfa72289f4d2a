package mcp_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"mcpx/api/mcp"
	"mcpx/artifacts"
	"mcpx/orchestrator/run"
)

func (w *world) post(body string, header ...string) (*http.Response, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.http.URL, strings.NewReader(body))
	require.NoError(w.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := w.http.Client().Do(req)
	require.NoError(w.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	return res, string(text)
}

func TestBatchesAreRefused(t *testing.T) {
	w := newWorld(t)
	one := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, version := range append([]string{""}, revisions...) {
		header := []string{}
		if version != "" {
			header = []string{"Mcp-Protocol-Version", version}
		}
		res, body := w.post(" \n["+one+","+one+"]", header...)
		require.Equal(t, http.StatusBadRequest, res.StatusCode)
		require.JSONEq(t, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batches are not taken: send each message in a request of its own"}}`, body)
	}
}

func TestMalformedBodiesAreTheClientsFault(t *testing.T) {
	w := newWorld(t)
	for _, body := range []string{"", "{", `"x"`, "null", `{"jsonrpc":"2.0","id":1,"method":"nope"}`, "\xff"} {
		for _, header := range [][]string{nil, {"Mcp-Protocol-Version", "2026-07-28"}, {"Mcp-Protocol-Version", "1999-01-01"}} {
			res, _ := w.post(body, header...)
			require.Equal(t, 4, res.StatusCode/100, "%q %v: %s", body, header, res.Status)
		}
	}
	res, _ := w.post(`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 33<<20) + `"}`)
	require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
}

func TestOnlyWhatIsAnnouncedIsServed(t *testing.T) {
	w := newWorld(t)
	for _, revision := range revisions {
		session := w.connect(revision)
		c := session.InitializeResult().Capabilities
		require.Nil(t, c.Prompts)
		require.Nil(t, c.Logging)
		require.Nil(t, c.Completions)
		require.NotNil(t, c.Tools)
		require.NotNil(t, c.Resources)
		_, err := session.ListPrompts(t.Context(), nil)
		require.ErrorContains(t, err, "prompts/list", revision)
		list, err := session.ListTools(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, list.Tools, 6)
		templates, err := session.ListResourceTemplates(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "mcpx://artifacts/{id}", templates.ResourceTemplates[0].URITemplate)
	}
}

func as(principal string) func(*sdk.ClientOptions, http.Header) {
	return func(_ *sdk.ClientOptions, h http.Header) { h.Set(headerPrincipal, principal) }
}

func TestCallersAreToldApart(t *testing.T) {
	w := newWorld(t)
	for _, revision := range revisions[:2] {
		alice, bob, local := w.connect(revision, as("alice")), w.connect(revision, as("bob")), w.connect(revision)
		var result run.Result
		structured(t, call(t, alice, "mcpx_exec", object{"source": "x"}), &result)
		require.Equal(t, "alice", w.runner.by[len(w.runner.by)-1].Principal)
		kept, err := w.config.Artifacts.Keep(t.Context(), artifacts.Meta{Name: "a.txt", Principal: "alice", Size: -1}, strings.NewReader("hers"))
		require.NoError(t, err)
		for _, uri := range []string{kept.URI, "mcpx://runs/" + result.RunID + "/stdout"} {
			for _, owner := range []*sdk.ClientSession{alice, local} {
				_, err := owner.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
				require.NoError(t, err, uri)
			}
			_, err := bob.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
			require.ErrorContains(t, err, "not found", uri)
		}
	}
}

// A session belongs to whoever began it, even if somebody else learns its id.
func TestAnothersSessionDoesNotExist(t *testing.T) {
	w := newWorld(t)
	session := w.connect("2025-11-25", as("alice"))
	ping := `{"jsonrpc":"2.0","id":9,"method":"ping"}`
	res, _ := w.post(ping, "Mcp-Session-Id", session.ID(), "Mcp-Protocol-Version", "2025-11-25", headerPrincipal, "alice")
	require.Equal(t, http.StatusOK, res.StatusCode)
	res, _ = w.post(ping, "Mcp-Session-Id", session.ID(), "Mcp-Protocol-Version", "2025-11-25", headerPrincipal, "bob")
	require.Equal(t, http.StatusNotFound, res.StatusCode)
}

// The key by which a handler finds its request is ours alone.
func TestRequestKeyIsNotTakenFromOutside(t *testing.T) {
	w := newWorld(t)
	session := w.connect("2025-11-25", func(_ *sdk.ClientOptions, h http.Header) { h.Set("Mcpx-Request-Key", "guess") })
	require.False(t, call(t, session, "mcpx_exec", object{"source": "x"}).IsError)
}

func TestArtifactsAreResources(t *testing.T) {
	w := newWorld(t)
	session := w.connect("2026-07-28")
	for _, c := range []struct{ mime, data string }{{"text/plain", "héllo"}, {"image/png", "\x89PNG\xff"}, {"text/plain", "\xff"}, {"application/json", `{"a":1}`}} {
		kept, err := w.config.Artifacts.Keep(t.Context(), artifacts.Meta{Name: "a", MIME: c.mime, Size: -1}, strings.NewReader(c.data))
		require.NoError(t, err)
		read, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: kept.URI})
		require.NoError(t, err)
		got := read.Contents[0]
		require.Equal(t, kept.URI, got.URI)
		require.Equal(t, c.mime, got.MIMEType)
		require.Equal(t, c.data, got.Text+string(got.Blob))
		require.Equal(t, "private", read.CacheScope)
	}
	for _, uri := range []string{"mcpx://artifacts/00000000000000000000000000000000", "mcpx://artifacts/..%2f", "mcpx://runs/nope/stdout", "file:///etc/passwd"} {
		_, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
		require.Error(t, err, uri)
	}
	big, err := w.config.Artifacts.Keep(t.Context(), artifacts.Meta{Name: "big.bin", Size: -1}, bytes.NewReader(make([]byte, 17<<20)))
	require.NoError(t, err)
	_, err = session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: big.URI})
	require.ErrorContains(t, err, "GET /v1/artifacts/"+big.ID)
}

func TestClosedServerAnswersNobody(t *testing.T) {
	w := newWorld(t)
	w.server.Close()
	res, body := w.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.Contains(t, body, run.CodeShuttingDown)
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mcpx_ls","arguments":{}}}`), "2026-07-28")
	f.Add([]byte(`[{"jsonrpc":"2.0"}]`), "")
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`), "2025-11-25")
	f.Add([]byte(`{"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}}`), "x")
	server := mcp.New(mcp.Config{Tools: newShelf()})
	f.Cleanup(server.Close)
	f.Fuzz(func(t *testing.T, body []byte, version string) {
		w := newRecorder()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", bytes.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header["Mcp-Protocol-Version"] = []string{version}
		require.NoError(t, server.ServeMCP(w, req, run.Caller{Principal: "p"}))
		if trimmed := bytes.TrimLeft(body, " \t\r\n"); bytes.HasPrefix(trimmed, []byte("[")) {
			require.Equal(t, http.StatusBadRequest, w.status)
			require.True(t, json.Valid(w.body.Bytes()))
		}
	})
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newRecorder() *recorder { return &recorder{header: http.Header{}, status: http.StatusOK} }

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Flush()                      {}
