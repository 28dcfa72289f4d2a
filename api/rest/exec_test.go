package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/api/auth"
	"mcpx/orchestrator/run"
)

func TestStructuredAnswerIsTheWholeResult(t *testing.T) {
	d := start(t, newJobs())
	got := d.exec(`{"source":"echo hello"}`)
	require.Equal(t, http.StatusOK, got.status, got.body)
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	require.Equal(t, "run-1", got.header.Get("Mcpx-Run-Id"))
	var r run.Result
	require.NoError(t, json.Unmarshal([]byte(got.body), &r))
	require.Equal(t, "run-1", r.RunID)
	require.Equal(t, run.Exited, r.State)
	require.Equal(t, "hello\n", r.Stdout)
	require.Equal(t, "aside\n", r.Stderr)
	require.Equal(t, "echo hello", d.jobs.submitted("run-1").req.Source)
	require.Equal(t, run.Caller{Principal: auth.PrincipalLocal, SharedFs: true}, d.jobs.submitted("run-1").caller)
}

func TestScriptThatFailsIsStill200(t *testing.T) {
	for _, state := range []run.State{run.Exited, run.Signalled, run.TimedOut, run.OOMKilled, run.OutputLimit, run.Cancelled} {
		t.Run(string(state), func(t *testing.T) {
			j := newJobs()
			j.script = func(_ context.Context, _ run.Request, emit func(string, any)) {
				finish(emit, state, 1, &run.Error{Code: run.CodeExitStatus, Message: "it failed"})
			}
			got := start(t, j).exec(`{"source":"false"}`)
			require.Equal(t, http.StatusOK, got.status)
			require.Contains(t, got.body, `"message":"it failed"`)
		})
	}
}

func TestRunThatWasNotCarriedOutIsAProblemThatNamesIt(t *testing.T) {
	for code, status := range map[string]int{
		run.CodeEngineUnavailable: 503, run.CodeImageNotFound: 404, run.CodeInternal: 500, run.CodeStartFailed: 422, run.CodeLost: 500,
	} {
		for _, output := range []string{run.OutputStructured, run.OutputText} {
			t.Run(code+"/"+output, func(t *testing.T) {
				j := newJobs()
				j.script = func(_ context.Context, _ run.Request, emit func(string, any)) {
					finish(emit, run.Failed, -1, &run.Error{Code: code, Message: "docker is away", Hint: "start it"})
				}
				got := start(t, j).exec(fmt.Sprintf(`{"source":"x","options":{"output":%q}}`, output))
				p := got.problem(t)
				require.Equal(t, status, p.Status)
				require.Equal(t, code, p.Code)
				require.Equal(t, "docker is away", p.Detail)
				require.Equal(t, "start it", p.Hint)
				require.Equal(t, "run-1", p.RunID)
			})
		}
	}
}

func TestRefusedSubmitIsAProblem(t *testing.T) {
	j := newJobs()
	j.refuse = &run.Error{Code: run.CodeScriptNotFound, Message: "no script x", Field: "file", Searched: []string{"/a"}, Class: errdefs.ErrNotFound}
	p := start(t, j).exec(`{"file":"x"}`).problem(t)
	require.Equal(t, 404, p.Status)
	require.Equal(t, []string{"/a"}, p.Searched)
	j.refuse = &run.Error{Code: run.CodeQueueFull, Message: "32 runs wait", Class: errdefs.ErrResourceExhausted}
	got := start(t, j).exec(`{"file":"x"}`)
	require.Equal(t, 429, got.problem(t).Status)
	require.Equal(t, "1", got.header.Get("Retry-After"))
}

func TestTextIsStdoutByteForByte(t *testing.T) {
	j := newJobs()
	j.script = func(_ context.Context, _ run.Request, emit func(string, any)) {
		emit(run.EventStdout, &run.OutputFrame{Text: "a\nb"})
		emit(run.EventStderr, &run.OutputFrame{Text: "not in it"})
		emit(run.EventStdout, &run.OutputFrame{Data: []byte{0xff, 0x00, 0xfe}})
		finish(emit, run.Signalled, -1, &run.Error{Code: run.CodeSignalled, Message: "m"})
	}
	d := start(t, j)
	got := d.exec(`{"source":"x","options":{"output":"text"}}`)
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, "a\nb\xff\x00\xfe", got.body)
	require.Equal(t, "text/plain; charset=utf-8", got.header.Get("Content-Type"))
	require.Equal(t, "run-1", got.header.Get("Mcpx-Run-Id"))
	require.Equal(t, http.Header{"Mcpx-State": {"signalled"}, "Mcpx-Exit-Code": {"255"}}, got.trailer)
}

func TestTextOfASilentRunTellsItsEnding(t *testing.T) {
	j := newJobs()
	j.script = func(_ context.Context, _ run.Request, emit func(string, any)) { finish(emit, run.Exited, 3, nil) }
	got := start(t, j).exec(`{"source":"x","options":{"output":"text"}}`)
	require.Equal(t, http.StatusOK, got.status)
	require.Empty(t, got.body)
	require.Equal(t, http.Header{"Mcpx-State": {"exited"}, "Mcpx-Exit-Code": {"3"}}, got.trailer)
}

func TestTextComesAsItIsWritten(t *testing.T) {
	j := newJobs()
	j.script = waitForCancel
	d := start(t, j)
	res := d.open(t.Context(), http.MethodPost, "/v1/exec", strings.NewReader(`{"source":"x","options":{"output":"text"}}`), "Content-Type", "application/json")
	defer res.Body.Close()
	first := make([]byte, len("begun\n"))
	_, err := io.ReadFull(res.Body, first)
	require.NoError(t, err)
	require.Equal(t, "begun\n", string(first))
	require.Equal(t, 200, d.do(http.MethodPost, "/v1/runs/run-1/cancel", "").status)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	require.Equal(t, "130", res.Trailer.Get("Mcpx-Exit-Code"))
}

func TestStreamYieldsEachFrameInOrder(t *testing.T) {
	j := newJobs()
	j.script = func(_ context.Context, _ run.Request, emit func(string, any)) {
		for i := range 100 {
			emit(run.EventStdout, &run.OutputFrame{Text: fmt.Sprintf("<%d>\nid: 7\n", i)})
		}
		finish(emit, run.Exited, 0, nil)
	}
	d := start(t, j)
	const body = `{"source":"x","options":{"output":"stream"}}`

	sse := d.exec(body)
	require.Equal(t, "text/event-stream", sse.header.Get("Content-Type"))
	require.Equal(t, "no", sse.header.Get("X-Accel-Buffering"))
	require.Equal(t, "no-store", sse.header.Get("Cache-Control"))
	requireGapless(t, parseSSE(t, sse.body), 1, 102)

	ndjson := d.exec(body, "Accept", "application/json;q=0.1, application/x-ndjson")
	require.Equal(t, "application/x-ndjson", ndjson.header.Get("Content-Type"))
	requireGapless(t, parseNDJSON(t, ndjson.body), 1, 102)

	refused := d.exec(body, "Accept", "application/x-ndjson;q=0, */*")
	require.Equal(t, "text/event-stream", refused.header.Get("Content-Type"))
}

func TestFirstFrameComesBeforeTheLast(t *testing.T) {
	j := newJobs()
	j.script = waitForCancel
	d := start(t, j)
	res := d.open(t.Context(), http.MethodPost, "/v1/exec", strings.NewReader(`{"source":"x","options":{"output":"stream"}}`),
		"Content-Type", "application/json", "Accept", "application/x-ndjson")
	defer res.Body.Close()
	require.Equal(t, "run-1", res.Header.Get("Mcpx-Run-Id"))
	lines := bufio.NewScanner(res.Body)
	require.True(t, lines.Scan())
	require.Contains(t, lines.Text(), `"type":"start"`)
	require.True(t, lines.Scan())
	require.Contains(t, lines.Text(), `"text":"begun\n"`)
	d.do(http.MethodPost, "/v1/runs/run-1/cancel", "")
	for lines.Scan() {
	}
	require.NoError(t, lines.Err())
}

func parseSSE(t *testing.T, body string) []run.Event {
	t.Helper()
	var events []run.Event
	for block := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		if strings.HasPrefix(block, ":") {
			continue
		}
		lines := strings.Split(block, "\n")
		require.Len(t, lines, 3, block)
		var e run.Event
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(lines[2], "data: ")), &e), block)
		require.Equal(t, fmt.Sprintf("id: %d", e.Seq), lines[0])
		require.Equal(t, "event: "+e.Type, lines[1])
		events = append(events, e)
	}
	return events
}

func parseNDJSON(t *testing.T, body string) []run.Event {
	t.Helper()
	var events []run.Event
	for line := range strings.SplitSeq(strings.TrimSuffix(body, "\n"), "\n") {
		var e run.Event
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		events = append(events, e)
	}
	return events
}

func requireGapless(t *testing.T, events []run.Event, first, last int64) {
	t.Helper()
	require.Len(t, events, int(last-first+1))
	for i, e := range events {
		require.Equal(t, first+int64(i), e.Seq)
	}
	require.Equal(t, run.EventEnd, events[len(events)-1].Type)
}

// A caller that goes away ends its run, by both kinds of listeners, in every
// form of answer, whether it had sent a body at once or in pieces.
func TestDisconnectEndsTheRun(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		for _, output := range []string{"structured", "text", "stream"} {
			t.Run(network+"/"+output, func(t *testing.T) {
				j := newJobs()
				begun := make(chan struct{})
				j.script = func(ctx context.Context, req run.Request, emit func(string, any)) {
					close(begun)
					waitForCancel(ctx, req, emit)
				}
				d := start(t, j)
				conn := d.dial(network)
				body := fmt.Sprintf(`{"source":"x","options":{"output":%q}}`, output)
				fmt.Fprintf(conn, "POST /v1/exec HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
					"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", token, len(body), body)
				<-begun
				require.NoError(t, conn.Close())
				require.ErrorIs(t, j.cause(t.Context(), "run-1"), run.ErrClientGone)
			})
		}
	}
}

func (d *daemon) dial(network string) net.Conn {
	d.t.Helper()
	address := map[string]string{"unix": d.socket, "tcp": d.tcp}[network]
	conn, err := (&net.Dialer{}).DialContext(d.t.Context(), network, address)
	require.NoError(d.t, err)
	return conn
}

func TestTaskOutlivesItsCaller(t *testing.T) {
	j := newJobs()
	j.script = waitForCancel
	d := start(t, j)
	got := d.exec(`{"source":"x","options":{"task":{"ttl":60000},"output":"stream"}}`)
	require.Equal(t, http.StatusAccepted, got.status)
	require.Equal(t, "/v1/runs/run-1", got.header.Get("Location"))
	var s run.Summary
	require.NoError(t, json.Unmarshal([]byte(got.body), &s))
	require.Equal(t, "run-1", s.RunID)
	require.False(t, s.State.Terminal())
	d.unix.CloseIdleConnections()

	// A reader that leaves does not end it either.
	ctx, leave := context.WithCancel(t.Context())
	res := d.open(ctx, http.MethodGet, "/v1/runs/run-1/frames", nil)
	first := make([]byte, 1)
	_, err := io.ReadFull(res.Body, first)
	require.NoError(t, err)
	leave()
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, d.do(http.MethodPost, "/v1/runs/run-1/cancel", "").status)
	require.ErrorIs(t, j.cause(t.Context(), "run-1"), run.ErrCancelled)
}

func TestSlowReaderSlowsItsLogOnly(t *testing.T) {
	j := newJobs()
	const frames = 4000
	piece := strings.Repeat("x", 16<<10)
	j.script = func(_ context.Context, _ run.Request, emit func(string, any)) {
		for range frames {
			emit(run.EventStdout, &run.OutputFrame{Text: piece})
		}
		finish(emit, run.Exited, 0, nil)
	}
	d := start(t, j)
	res := d.open(t.Context(), http.MethodPost, "/v1/exec", strings.NewReader(`{"source":"x","options":{"output":"stream"}}`), "Content-Type", "application/json")
	defer res.Body.Close()
	j.running.Wait() // the script is through although nobody reads
	stalled := settle(t, j.taken)
	require.Less(t, stalled, frames/2, "frames are piling up in the daemon")
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	requireGapless(t, parseSSE(t, string(body)), 1, frames+2)
}

// settle polls until the value has been the same for a while.
func settle(t *testing.T, value func() int) int {
	t.Helper()
	last, since := value(), time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for time.Since(since) < 100*time.Millisecond {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("it never settles")
		}
		if now := value(); now != last {
			last, since = now, time.Now()
		}
	}
	return last
}

func TestSharedFileSystemIsDeclaredNeverInferred(t *testing.T) {
	for _, c := range []struct {
		name, options string
		want          bool
	}{
		{"nothing said", `{"cwd":"/data/x"}`, false},
		{"cwd inside", `{"cwd":"/data/x","artifacts":{"sharedFs":"/data"}}`, true},
		{"cwd is it", `{"cwd":"/data","artifacts":{"sharedFs":"/data"}}`, true},
		{"cwd outside", `{"cwd":"/etc","artifacts":{"sharedFs":"/data"}}`, false},
		{"cwd climbs out", `{"cwd":"/data/../etc","artifacts":{"sharedFs":"/data"}}`, false},
		{"name that starts alike", `{"cwd":"/data2","artifacts":{"sharedFs":"/data"}}`, false},
		{"relative", `{"cwd":"x","artifacts":{"sharedFs":"."}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := start(t, newJobs())
			got := d.read(d.overTCP(t.Context(), http.MethodPost, "/v1/exec", strings.NewReader(`{"source":"x","options":`+c.options+`}`),
				"Content-Type", "application/json", "Authorization", "Bearer "+token))
			require.Equal(t, http.StatusOK, got.status, got.body)
			require.Equal(t, run.Caller{Principal: auth.PrincipalToken, DeclaresFs: c.want}, d.jobs.submitted("run-1").caller)
		})
	}
}

func (d *daemon) overTCP(ctx context.Context, method, path string, body io.Reader, header ...string) *http.Response {
	d.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+d.tcp+path, body)
	require.NoError(d.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	require.NoError(d.t, err)
	return res
}
