package endpoint_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/supervisor/endpoint"
)

// serve answers on a socket, and yields its path and the requests.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "e")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	server := &http.Server{Handler: handler}
	go server.Serve(listener) //nolint:errcheck // ends with the server
	t.Cleanup(func() { server.Close() })
	return path
}

func do(t *testing.T, socket, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, complaint bytes.Buffer
	c := endpoint.Command{Socket: socket, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &complaint}
	return c.Run(t.Context(), args), out.String(), complaint.String()
}

func TestCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, []byte("content"), 0o644))
	long := strings.Repeat("x", 300<<10)
	for name, c := range map[string]struct {
		args  []string
		stdin string
		sent  string
		reply string
		out   string
	}{
		"call":              {args: []string{"call", "a b", "../é"}, sent: "POST /v1/call/a%20b/..%2F%C3%A9 application/json 2 {}", reply: `{"raw":{},"value":{"a": 1}}`, out: "{\"a\": 1}\n"},
		"call, arguments":   {args: []string{"call", "--", "a", "b", `{"x":1}`}, sent: `POST /v1/call/a/b application/json 7 {"x":1}`, reply: `{"raw":{},"value":"te\"xt\n"}`, out: "te\"xt\n\n"},
		"call, piped":       {args: []string{"call", "a", "b", "-"}, stdin: `{"x":2}`, sent: `POST /v1/call/a/b application/json -1 {"x":2}`, reply: `{"raw":{},"value":null}`, out: "null\n"},
		"call, raw":         {args: []string{"call", "--raw", "a", ".."}, sent: `POST /v1/call/a/%2E%2E application/json 2 {}`, reply: `{"raw":{"isError":true},"isError":true}`, out: "{\"isError\":true}\n"},
		"call, long answer": {args: []string{"call", "a", "b"}, sent: `POST /v1/call/a/b application/json 2 {}`, reply: `{"value":"` + long + `"}`, out: long + "\n"},
		"emit":              {args: []string{"emit", "[1]"}, sent: "POST /v1/emit application/json 3 [1]"},
		"emit, text":        {args: []string{"emit", "-s", "-\"\n"}, sent: `POST /v1/emit application/json 7 "-\"\n"`},
		"result":            {args: []string{"result", "-"}, stdin: "2", sent: "POST /v1/result application/json -1 2"},
		"log":               {args: []string{"log", "--", "info", "a", "b"}, sent: `POST /v1/log application/json 32 {"level":"info","message":"a b"}`},
		"artifact":          {args: []string{"artifact", "a&b", file, "text/x"}, sent: "POST /v1/artifacts?name=a%26b text/x 7 content", reply: `{"id":1}`, out: "{\"id\":1}\n"},
		"artifact, piped":   {args: []string{"artifact", "a", "-"}, stdin: long, sent: "POST /v1/artifacts?name=a  -1 " + long, reply: `{}`, out: "{}\n"},
		"tools":             {args: []string{"tools"}, sent: "GET /v1/tools  0 ", reply: `{"servers":[]}`, out: "{\"servers\":[]}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			sent := make(chan string, 1)
			socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				sent <- strings.Join([]string{r.Method, r.RequestURI, r.Header.Get("Content-Type"), strconv.FormatInt(r.ContentLength, 10), string(body)}, " ")
				if c.reply == "" {
					w.WriteHeader(http.StatusNoContent)
				}
				io.WriteString(w, c.reply) //nolint:errcheck // the client tells
			})
			code, out, complaint := do(t, socket, c.stdin, c.args...)
			require.Empty(t, complaint)
			require.Equal(t, 0, code)
			require.Equal(t, c.out, out)
			require.Equal(t, c.sent, <-sent)
		})
	}
}

func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		status int
		reply  string
		code   int
		says   string
	}{
		"tool's error":              {[]string{"call", "a", "b"}, 200, `{"isError":true,"text":"no"}`, 1, "mcpx: no\n"},
		"tool's error without text": {[]string{"call", "a", "b"}, 200, `{"isError":true}`, 1, "mcpx: the tool reported an error\n"},
		"problem":                   {[]string{"call", "a", "b"}, 403, `{"detail":"denied","code":"x","hint":"ask"}`, 2, "mcpx: denied [x]; ask\n"},
		"no problem":                {[]string{"emit", "1"}, 500, `oh`, 2, "mcpx: POST /v1/emit: HTTP status 500\n"},
		"no answer of a call":       {[]string{"call", "a", "b"}, 200, `{"value":`, 2, "mcpx: read the answer: unexpected EOF\n"},
		"no file":                   {[]string{"artifact", "a", "/nope/x"}, 200, ``, 2, "mcpx: open /nope/x: no such file or directory\n"},
		"two lines of a type":       {[]string{"artifact", "a", "-", "a\r\nB: c"}, 200, ``, 2, "mcpx: \"a\\r\\nB: c\" is no media type\n"},
		"usage of call":             {[]string{"call", "a"}, 200, ``, 2, endpoint.Usage},
		"usage of emit":             {[]string{"emit"}, 200, ``, 2, endpoint.Usage},
		"usage of log":              {[]string{"log", "info"}, 200, ``, 2, endpoint.Usage},
		"usage of artifact":         {[]string{"artifact", "a"}, 200, ``, 2, endpoint.Usage},
		"usage of tools":            {[]string{"tools", "a"}, 200, ``, 2, endpoint.Usage},
	} {
		t.Run(name, func(t *testing.T) {
			socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(c.status)
				io.WriteString(w, c.reply) //nolint:errcheck // the client tells
			})
			code, out, complaint := do(t, socket, "", c.args...)
			require.Empty(t, out)
			require.Equal(t, c.says, complaint)
			require.Equal(t, c.code, code)
		})
	}
}

// A refusal that comes before all is sent is told, not the broken pipe.
func TestEarlyRefusal(t *testing.T) {
	socket := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		io.WriteString(w, `{"detail":"too large"}`) //nolint:errcheck // the client tells
	})
	code, _, complaint := do(t, socket, strings.Repeat("x", 16<<20), "artifact", "a", "-")
	require.Equal(t, 2, code)
	require.Equal(t, "mcpx: too large\n", complaint)
}

func TestHelp(t *testing.T) {
	for _, name := range []string{"call", "emit", "result", "log", "artifact", "tools"} {
		require.True(t, endpoint.Knows(name))
		code, out, _ := do(t, "/nope", "", name, "-h")
		require.Equal(t, 0, code)
		require.Equal(t, endpoint.Usage, out)
	}
	require.False(t, endpoint.Knows("host"))
}

// answerWith is a peer that says these bytes, whatever it is asked, and hangs up.
func answerWith(t *testing.T, text string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "e")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 4096)
			conn.Read(buffer)          //nolint:errcheck // whatever it is
			io.WriteString(conn, text) //nolint:errcheck // the client may have hung up
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return path
}

func TestAnswersOfAnyKind(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		out  string
		code int
	}{
		"chunks":            {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nA: b\r\n\r\n", "abcde\n", 0},
		"until the end":     {"HTTP/1.0 200 OK\n\nabc", "abc\n", 0},
		"length":            {"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabc", "ab\n", 0},
		"cut off":           {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "abc", 2},
		"cut off chunk":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc", "abc", 2},
		"cut off chunks":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "abc", 2},
		"cut off head":      {"HTTP/1.1 200 OK\r\nA: b", "", 2},
		"no HTTP":           {"hello\r\n\r\n", "", 2},
		"no status":         {"HTTP/1.1 x\r\n\r\n", "", 2},
		"bad length":        {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "", 2},
		"bad chunk":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc", "", 2},
		"chunk without end": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n", "abc", 2},
		"other encoding":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "", 2},
		"endless line":      {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 20<<10), "", 2},
		"endless head":      {"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 500) + "\r\n", "", 2},
		"nothing":           {"", "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, complaint := do(t, answerWith(t, c.text), "", "tools")
			require.Equal(t, c.code, code, complaint)
			require.Equal(t, c.out, out)
			require.Equal(t, c.code == 0, complaint == "")
		})
	}
	code, _, complaint := do(t, "/nope", "", "tools")
	require.Equal(t, 2, code)
	require.Contains(t, complaint, "/nope")
}
