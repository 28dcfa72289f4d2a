package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/api/auth"
	"mcpx/api/problem"
	"mcpx/api/rest"
	"mcpx/orchestrator/run"
)

func TestBadBodyIsRefusedByName(t *testing.T) {
	d := start(t, newJobs())
	for _, c := range []struct {
		name, body, field, message string
	}{
		{"empty", ``, "", "the body is empty"},
		{"blank", " \n", "", "the JSON ends too early, at byte 2"},
		{"cut off", `{"source":"x"`, "", "the JSON ends too early, at byte 13"},
		{"more after it", `{"source":"x"} {}`, "", "not JSON at byte 15: invalid character '{' after top-level value"},
		{"not an object", `["x"]`, "", "an object was expected, not a list"},
		{"text", `hello`, "", "not JSON at byte 0: invalid character 'h' at start of value"},
		{"unknown field", `{"source":"x","sauce":1}`, "sauce", "unknown field"},
		{"unknown option", `{"source":"x","options":{"time_out":"2s"}}`, "options.time_out", "unknown field"},
		{"unknown deeper", `{"source":"x","options":{"artifacts":{"max":1}}}`, "options.artifacts.max", "unknown field"},
		{"other case", `{"Source":"x"}`, "Source", "unknown field"},
		{"doubled", `{"source":"x","source":"y"}`, "source", "the field stands twice"},
		{"doubled in a map", `{"source":"x","options":{"env":{"A":"1","A":"2"}}}`, "options.env.A", "the field stands twice"},
		{"number for text", `{"source":1}`, "source", "a string was expected, not a number"},
		{"number for a duration", `{"source":"x","options":{"timeout":2}}`, "options.timeout", "a string was expected, not a number"},
		{"text for a list", `{"source":"x","options":{"args":"-v"}}`, "options.args", "a list was expected, not a string"},
		{"in a list", `{"source":"x","options":{"args":["a",true]}}`, "options.args[1]", "a string was expected, not true or false"},
		{"in a map", `{"source":"x","options":{"files":{"a b":{}}}}`, `options.files["a b"]`, "a string was expected, not an object"},
		{"text for a number", `{"source":"x","options":{"task":{"ttl":"1h"}}}`, "options.task.ttl", "a whole number was expected, not a string"},
		{"fraction", `{"source":"x","options":{"task":{"ttl":1.5}}}`, "options.task.ttl", "a whole number was expected, not the number 1.5"},
		{"too large a number", `{"source":"x","options":{"task":{"ttl":1e99}}}`, "options.task.ttl", "a whole number was expected, not the number 1e99"},
		{"text for true", `{"source":"x","options":{"captureConsole":"yes"}}`, "options.captureConsole", "true or false was expected, not a string"},
		{"list for an object", `{"source":"x","options":[]}`, "options", "an object was expected, not a list"},
		{"raw NUL", "{\"source\":\"a\x00b\"}", "source", "not JSON at byte 12: invalid character '\\x00' in string (expecting non-control character)"},
		{"not UTF-8", "{\"source\":\"a\xffb\"}", "source", "not JSON at byte 12: invalid UTF-8"},
		{"lone surrogate", `{"source":"\ud800"}`, "source", "not JSON at byte 11: invalid surrogate pair `\\ud800\"}` in string"},
		{"BOM", "\ufeff{}", "", "not JSON at byte 0: invalid character '\\ufeff' at start of value"},
		{"deep", `{"source":"x","options":{"placeholders":{"a":` + strings.Repeat("[", 20_000), "", "exceeded max depth"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := d.exec(c.body).problem(t)
			require.Equal(t, http.StatusBadRequest, p.Status)
			require.Equal(t, run.CodeInvalidBody, p.Code)
			if c.name == "deep" {
				require.Contains(t, p.Detail, c.message)
				require.Less(t, len(p.Field), 300)
				return
			}
			require.Equal(t, c.field, p.Field)
			require.Equal(t, c.message, p.Detail)
		})
	}
	require.Empty(t, d.jobs.ids(), "a refused body has started something")
}

func TestLongNamesAreNotEchoedWhole(t *testing.T) {
	p := start(t, newJobs()).exec(`{"` + strings.Repeat("ü", 1<<20) + `":1}`).problem(t)
	require.Less(t, len(p.Field), 300)
	require.True(t, strings.HasSuffix(p.Field, "ü…"), p.Field)
}

func TestWhatIsJSONComesThroughUnchanged(t *testing.T) {
	d := start(t, newJobs())
	got := d.exec(`{"source":"a\u0000\ud83d\ude00≤\r\n","options":{"placeholders":{"p":{"b":1,"a":[null]}},"env":{},"args":null}}`)
	require.Equal(t, http.StatusOK, got.status, got.body)
	req := d.jobs.submitted("run-1").req
	require.Equal(t, "a\x00😀≤\r\n", req.Source)
	require.JSONEq(t, `{"b":1,"a":[null]}`, string(req.Options.Placeholders["p"]))
}

func TestBodyOverTheLimitIs413(t *testing.T) {
	d := start(t, newJobs())
	for name, size := range map[string]int{"one byte": 32<<20 + 1, "a MiB": 33 << 20} {
		t.Run(name, func(t *testing.T) {
			body := `{"source":"` + strings.Repeat("x", size-len(`{"source":""}`)) + `"}`
			p := d.exec(body).problem(t)
			require.Equal(t, http.StatusRequestEntityTooLarge, p.Status)
			require.Equal(t, run.CodeTooLarge, p.Code)
			require.Contains(t, p.Detail, "33554432")
		})
	}
	largest := `{"source":"` + strings.Repeat("x", 32<<20-len(`{"source":""}`)) + `"}`
	require.Equal(t, http.StatusOK, d.exec(largest).status)
}

func TestContentTypeHasToBeJSON(t *testing.T) {
	d := start(t, newJobs())
	for given, ok := range map[string]bool{
		"application/json": true, "Application/JSON; charset=utf-8": true,
		"": false, "text/plain": false, "application/x-www-form-urlencoded": false, "application/jsonp": false,
		"text/plain; application/json": false, "multipart/form-data; boundary=x": false,
	} {
		t.Run(given, func(t *testing.T) {
			got := d.do(http.MethodPost, "/v1/exec", `{"source":"x"}`, "Content-Type", given)
			if ok {
				require.Equal(t, http.StatusOK, got.status, got.body)
				return
			}
			p := got.problem(t)
			require.Equal(t, http.StatusUnsupportedMediaType, p.Status)
			require.Equal(t, problem.CodeUnsupportedMedia, p.Code)
		})
	}
}

func TestBodyThatStopsShortIsTheCallersFault(t *testing.T) {
	d := start(t, newJobs())
	conn := d.dial("tcp")
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/exec HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Transfer-Encoding: chunked\r\n\r\nzz\r\n", token)
	reply := make([]byte, len("HTTP/1.1 400"))
	_, err := io.ReadFull(conn, reply)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 400", string(reply))
}

// FuzzExecBody: whatever the bytes are, the answer is a result or a problem
// that blames the caller, and what is accepted means the same to encoding/json.
func FuzzExecBody(f *testing.F) {
	for _, seed := range []string{`{"source":"x"}`, `{"file":"a","options":{"env":{"A":"1"},"task":{"ttl":1}}}`, `{"a":1}`, `[`, "\xff", `{"options":null}`} {
		f.Add([]byte(seed))
	}
	j := newJobs()
	s, err := rest.NewServer(rest.Config{Jobs: j, Runs: j, Gate: auth.Gate{NoToken: true}, Ready: func(context.Context) error { return nil }})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, body []byte) {
		req := httptest.NewRequest(http.MethodPost, "http://localhost/v1/exec", bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, req)
		j.running.Wait()
		if w.Code/100 == 2 {
			var same run.Request
			require.NoError(t, json.Unmarshal(body, &same))
			require.Equal(t, same.Source, j.submitted(w.Header().Get("Mcpx-Run-Id")).req.Source)
			return
		}
		require.Equal(t, http.StatusBadRequest, w.Code)
		var d problem.Document
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &d))
		require.Equal(t, run.CodeInvalidBody, d.Code)
	})
}
