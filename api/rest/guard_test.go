package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/api/auth"
	"mcpx/api/problem"
	"mcpx/api/rest"
	"mcpx/orchestrator/run"
)

// everyRoute yields the registered routes with their parameters filled in.
func everyRoute(s *rest.Server) iter.Seq2[string, string] {
	return func(yield func(method, path string) bool) {
		for _, r := range s.Engine().Routes() {
			if !yield(r.Method, strings.ReplaceAll(r.Path, ":id", "run-1")) {
				return
			}
		}
	}
}

func TestEveryRouteWantsTheTokenOnTCP(t *testing.T) {
	d := start(t, newJobs())
	open := map[string]bool{"/healthz": true, "/readyz": true} // probes have none
	count := 0
	for method, path := range everyRoute(d.server) {
		for name, header := range map[string][]string{"missing": nil, "wrong": {"Authorization", "Bearer " + token + "x"}} {
			t.Run(method+path+"/"+name, func(t *testing.T) {
				got := d.read(d.overTCP(t.Context(), method, path, nil, header...))
				if open[path] {
					require.Equal(t, http.StatusOK, got.status)
					return
				}
				count++
				require.Equal(t, http.StatusUnauthorized, got.status)
				require.Equal(t, `Bearer realm="mcpx"`, got.header.Get("WWW-Authenticate"))
				if method != http.MethodHead {
					require.Equal(t, run.CodeUnauthorized, got.problem(t).Code)
				}
				require.NotContains(t, got.body, token)
			})
		}
	}
	require.Greater(t, count, 10)
	require.Empty(t, d.jobs.ids())
}

func TestEveryRouteRefusesForeignPages(t *testing.T) {
	d := start(t, newJobs())
	for method, path := range everyRoute(d.server) {
		for name, header := range map[string][]string{
			"origin": {"Origin", "https://evil.example", "Authorization", "Bearer " + token},
			"host":   {"Host", "evil.example", "Authorization", "Bearer " + token},
		} {
			t.Run(method+path+"/"+name, func(t *testing.T) {
				got := d.read(d.overTCP(t.Context(), method, path, nil, header...))
				require.Equal(t, http.StatusForbidden, got.status)
				if method != http.MethodHead {
					require.Equal(t, run.CodeForbidden, got.problem(t).Code)
				}
			})
		}
		got := d.do(method, path, "", "Origin", "https://evil.example")
		require.Equal(t, http.StatusForbidden, got.status, "%s %s by the unix socket", method, path)
	}
}

func TestUnknownRouteAndMethodAreProblems(t *testing.T) {
	d := start(t, newJobs())
	for _, path := range []string{"/", "/v1", "/v1/exec/", "/v1/runs/", "/V1/exec", "/v2/exec", "//v1/exec", "/v1/../v1/exec"} {
		p := d.do(http.MethodGet, path, "").problem(t)
		require.Equal(t, http.StatusNotFound, p.Status, path)
		require.Equal(t, run.CodeNotFound, p.Code)
	}
	for _, c := range [][3]string{
		{http.MethodGet, "/v1/exec", "POST"}, {http.MethodDelete, "/v1/runs", "GET"}, {http.MethodGet, "/v1/runs/x/cancel", "POST"},
		{"BREW", "/healthz", "GET"},
	} {
		got := d.do(c[0], c[1], "")
		require.Equal(t, http.StatusMethodNotAllowed, got.status)
		require.Equal(t, problem.CodeMethodNotAllowed, got.problem(t).Code)
		require.Equal(t, c[2], got.header.Get("Allow"))
	}
}

func TestUnknownParameterIsRefusedByName(t *testing.T) {
	d := start(t, newJobs())
	for query, field := range map[string]string{
		"?limt=5": "limt", "?limit=5&limit=6": "limit", "?limit=0": "limit", "?limit=x": "limit", "?limit=1001": "limit",
		"?state=dead": "state", "?state=running,": "state", "?%zz": "", "?a;b": "",
	} {
		p := d.do(http.MethodGet, "/v1/runs"+query, "").problem(t)
		require.Equal(t, http.StatusBadRequest, p.Status, query)
		require.Equal(t, run.CodeInvalidRequest, p.Code)
		require.Equal(t, field, p.Field, query)
	}
}

func TestPanicIsAProblemAndTheDaemonLives(t *testing.T) {
	j := newJobs()
	var log bytes.Buffer
	d := start(t, j, func(c *rest.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
		c.Runs = panicking{j}
	})
	got := d.exec(`{"source":"x","options":{"task":{"ttl":1}}}`)
	p := got.problem(t)
	require.Equal(t, http.StatusInternalServerError, p.Status)
	require.NotContains(t, got.body, "boom")
	require.Equal(t, http.StatusOK, d.do(http.MethodGet, "/healthz", "").status)
	require.NoError(t, d.stop())
	require.Contains(t, log.String(), "boom")
	require.Contains(t, log.String(), "run=run-1")
}

type panicking struct{ *jobs }

func (panicking) Get(context.Context, string) (run.Summary, error) { panic("boom") }

// A log that breaks in the middle of a stream must not look like its end.
func TestBrokenLogBreaksTheConnection(t *testing.T) {
	j := newJobs()
	d := start(t, j, func(c *rest.Config) { c.Jobs = breaking{j} })
	for _, output := range []string{"stream", "text"} {
		res := d.open(t.Context(), http.MethodPost, "/v1/exec", strings.NewReader(`{"source":"x","options":{"output":"`+output+`"}}`), "Content-Type", "application/json")
		_, err := new(bytes.Buffer).ReadFrom(res.Body)
		require.ErrorContains(t, err, "unexpected EOF", output)
		require.NoError(t, res.Body.Close())
	}
	p := d.exec(`{"source":"x"}`).problem(t)
	require.Equal(t, http.StatusInternalServerError, p.Status)
	require.Equal(t, "run-3", p.RunID)
}

type breaking struct{ *jobs }

func (breaking) Watch(context.Context, string, int64) iter.Seq2[run.Event, error] {
	return func(yield func(run.Event, error) bool) {
		if yield(run.Event{Type: run.EventStdout, Seq: 1, TS: noon, Payload: &run.OutputFrame{Text: "a"}}, nil) {
			yield(run.Event{}, errors.New("disk is gone"))
		}
	}
}

func TestListenerWithoutATokenIsNotServed(t *testing.T) {
	c := configOf(t, newJobs())
	c.Gate = auth.Gate{}
	s, err := rest.NewServer(c)
	require.NoError(t, err)
	l := listen(t)
	require.ErrorContains(t, s.Serve(t.Context(), l), "needs a token")
	_, err = l.Accept()
	require.Error(t, err, "the listener is left open")
}

func TestHealthAndReadiness(t *testing.T) {
	d := start(t, newJobs())
	require.JSONEq(t, `{"ok":true}`, d.do(http.MethodGet, "/readyz", "").body)
	away := error(errors.New("dial unix /var/run/docker.sock: connection refused"))
	d.ready.Store(&away)
	got := d.do(http.MethodGet, "/readyz", "")
	p := got.problem(t)
	require.Equal(t, http.StatusServiceUnavailable, p.Status)
	require.Equal(t, run.CodeEngineUnavailable, p.Code)
	require.Contains(t, p.Detail, "connection refused")
	require.Equal(t, "1", got.header.Get("Retry-After"))
	require.JSONEq(t, `{"ok":true}`, d.do(http.MethodGet, "/healthz", "").body)
}

func TestAnswersCannotBeSniffed(t *testing.T) {
	d := start(t, newJobs())
	for _, path := range []string{"/healthz", "/v1/runs", "/nope"} {
		h := d.do(http.MethodGet, path, "").header
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		require.Equal(t, "same-origin", h.Get("Cross-Origin-Resource-Policy"))
		var v any
		require.NoError(t, json.Unmarshal([]byte(d.do(http.MethodGet, path, "").body), &v))
	}
}
