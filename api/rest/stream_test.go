package rest_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/api/auth"
	"mcpx/api/rest"
	"mcpx/orchestrator/run"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// A run that is silent for 65 s: its stream says something every 15.
func TestSilentStreamHasAHeartbeat(t *testing.T) {
	for accept, ping := range map[string]string{"": ": ping\n\n", "application/x-ndjson": `{"type":"ping"}` + "\n"} {
		t.Run(accept, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJobs()
				j.script = func(_ context.Context, _ run.Request, emit func(string, any)) {
					time.Sleep(65 * time.Second) // of the bubble's clock
					finish(emit, run.Exited, 0, nil)
				}
				c := configOf(t, j)
				c.Gate = auth.Gate{NoToken: true}
				s, err := rest.NewServer(c)
				require.NoError(t, err)
				began := time.Now()
				w := &stamped{ResponseRecorder: httptest.NewRecorder(), began: began}
				req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/exec",
					strings.NewReader(`{"source":"x","options":{"output":"stream"}}`))
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Accept", accept)
				s.ServeHTTP(w, req)
				require.Equal(t, 4, strings.Count(w.Body.String(), ping))
				require.Equal(t, []int{0, 15, 30, 45, 60, 65}, w.seconds)
			})
		})
	}
}

// stamped notes at which second of the test something was written.
type stamped struct {
	*httptest.ResponseRecorder
	began   time.Time
	seconds []int
}

func (s *stamped) Write(p []byte) (int, error) {
	if at := int(time.Since(s.began).Seconds()); len(s.seconds) == 0 || s.seconds[len(s.seconds)-1] != at {
		s.seconds = append(s.seconds, at)
	}
	return s.ResponseRecorder.Write(p)
}

func TestFramesResumeAnywhere(t *testing.T) {
	d := start(t, newJobs())
	require.Equal(t, http.StatusOK, d.exec(`{"source":"x"}`).status) // start stdout stderr end
	for _, c := range []struct {
		query, last string
		first       int64
	}{
		{"", "", 1}, {"?after=0", "", 1}, {"?after=2", "", 3}, {"", "3", 4}, {"?after=1", "3", 4},
	} {
		header := []string{}
		if c.last != "" {
			header = []string{"Last-Event-ID", c.last}
		}
		got := d.do(http.MethodGet, "/v1/runs/run-1/frames"+c.query, "", header...)
		require.Equal(t, http.StatusOK, got.status)
		require.Equal(t, "run-1", got.header.Get("Mcpx-Run-Id"))
		requireGapless(t, parseSSE(t, got.body), c.first, 4)
	}
	require.Empty(t, d.do(http.MethodGet, "/v1/runs/run-1/frames?after=99", "").body)
}

func TestFramesOfNothingOrFromNowhereAreRefused(t *testing.T) {
	d := start(t, newJobs())
	d.exec(`{"source":"x"}`)
	require.Equal(t, http.StatusNotFound, d.do(http.MethodGet, "/v1/runs/nope/frames", "").problem(t).Status)
	for field, values := range map[string][]string{
		"after":         {"-1", "x", "1.5", "99999999999999999999", "0x1", " 1"},
		"Last-Event-ID": {"-1", "x", "1e3", "99999999999999999999"},
	} {
		for _, value := range values {
			path, header := "/v1/runs/run-1/frames", []string{}
			if field == "after" {
				path += "?after=" + strings.ReplaceAll(value, " ", "%20")
			} else {
				header = []string{field, value}
			}
			p := d.do(http.MethodGet, path, "", header...).problem(t)
			require.Equal(t, http.StatusBadRequest, p.Status, value)
			require.Equal(t, field, p.Field)
		}
	}
}

func TestDrainLetsRunsEndAndReadersGo(t *testing.T) {
	j := newJobs()
	proceed := make(chan struct{})
	j.script = func(_ context.Context, _ run.Request, emit func(string, any)) {
		<-proceed
		finish(emit, run.Exited, 0, nil)
	}
	d := start(t, j, func(c *rest.Config) { c.DrainTimeout = time.Minute })
	run1 := make(chan answer, 1)
	res := d.open(t.Context(), http.MethodPost, "/v1/exec", strings.NewReader(`{"source":"x","options":{"output":"stream"}}`), "Content-Type", "application/json")
	go func() { run1 <- d.read(res) }()
	reader := d.open(t.Context(), http.MethodGet, "/v1/runs/run-1/frames", nil)

	stopped := make(chan error, 1)
	go func() { stopped <- d.stop() }()
	got := d.read(reader) // ends although the run goes on
	require.NotContains(t, got.body, "event: end")
	close(proceed)
	requireGapless(t, parseSSE(t, (<-run1).body), 1, 2)
	require.NoError(t, <-stopped)
}

func TestDrainThatLastsTooLongCutsOff(t *testing.T) {
	j := newJobs()
	j.script = waitForCancel
	d := start(t, j, func(c *rest.Config) { c.DrainTimeout = time.Millisecond })
	res := d.open(t.Context(), http.MethodPost, "/v1/exec", strings.NewReader(`{"source":"x","options":{"output":"stream"}}`), "Content-Type", "application/json")
	defer res.Body.Close()
	require.NoError(t, d.stop())
	require.ErrorIs(t, j.cause(t.Context(), "run-1"), run.ErrClientGone)
}
