package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mcpx/api/client"
	"mcpx/api/problem"
	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// serve answers on a unix socket and on TCP, and yields a client of each.
func serve(t *testing.T, handler http.HandlerFunc) map[string]*client.Client {
	t.Helper()
	answer := handler
	handler = func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // net/http notices a hang-up only behind the body
		if err != nil {
			panic(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer(w, r)
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	unix := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}}
	unix.Start()
	tcp := httptest.NewServer(handler)
	clients := map[string]*client.Client{}
	for name, endpoint := range map[string]string{"unix": "unix://" + socket, "tcp": tcp.URL} {
		c, err := client.New(endpoint, "t0ken")
		require.NoError(t, err)
		require.Equal(t, endpoint, c.Endpoint())
		clients[name] = c
	}
	t.Cleanup(func() {
		for _, c := range clients {
			c.Close()
		}
		tcp.Close()
		unix.Close()
	})
	return clients
}

func TestEndpoints(t *testing.T) {
	for endpoint, class := range map[string]error{
		"unix:///run/mcpx/mcpx.sock": nil, "http://127.0.0.1:7770": nil, "https://mcpx.example": nil, "http://[::1]:7770/": nil,
		"unix://relative/s": errdefs.ErrInvalidArgument, "unix://": errdefs.ErrInvalidArgument, "/run/mcpx.sock": errdefs.ErrInvalidArgument,
		"127.0.0.1:7770": errdefs.ErrInvalidArgument, "http://": errdefs.ErrInvalidArgument, "http://h/v1": errdefs.ErrInvalidArgument,
		"http://u:p@h": errdefs.ErrInvalidArgument, "ftp://h": errdefs.ErrInvalidArgument, "": errdefs.ErrInvalidArgument,
		"ssh://user@host": errdefs.ErrNotImplemented,
	} {
		t.Run(endpoint, func(t *testing.T) {
			_, err := client.New(endpoint, "")
			if class == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, class)
			var e *run.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "endpoint", e.Field)
		})
	}
}

func line(w http.ResponseWriter, seq int64, kind string, payload any) {
	data, err := json.Marshal(run.Event{Type: kind, Seq: seq, TS: noon, Payload: payload})
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(w, "%s\n", data)
	w.(http.Flusher).Flush()
}

func TestExecYieldsEventsAndFoldsThem(t *testing.T) {
	var got run.Request
	for name, c := range serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t0ken" || r.Header.Get("Accept") != "application/x-ndjson" || r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "headers", http.StatusTeapot)
			return
		}
		got = run.Request{}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			panic(err)
		}
		zero := 0
		w.Header().Set("Mcpx-Run-Id", "r1")
		line(w, 1, run.EventStart, &run.StartFrame{RunID: "r1"})
		fmt.Fprintln(w, `{"type":"ping"}`)
		line(w, 2, run.EventStdout, &run.OutputFrame{Data: []byte{0xff}})
		line(w, 3, run.EventEnd, &run.End{RunID: "r1", State: run.Exited, ExitCode: &zero})
	}) {
		t.Run(name, func(t *testing.T) {
			var kinds []string
			result, err := c.Exec(t.Context(), run.Request{Source: "x", Options: run.Options{Output: "text", Task: &run.TaskOptions{}}}, func(e run.Event) error {
				kinds = append(kinds, e.Type)
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, []string{"start", "stdout", "end"}, kinds)
			require.Equal(t, run.Exited, result.State)
			require.Equal(t, "/w==", result.Stdout)
			require.Equal(t, run.Request{Source: "x", Options: run.Options{Output: "stream"}}, got)
		})
	}
}

func TestRefusalsKeepCodeAndClass(t *testing.T) {
	sent := &run.Error{Code: run.CodeUnknownInterpreter, Message: "no policy knows zsh", Field: "options.runtime", Hint: "known: bash", Class: errdefs.ErrInvalidArgument}
	for _, c := range serve(t, func(w http.ResponseWriter, _ *http.Request) { problem.Write(w, problem.New(sent)) }) {
		_, err := c.Exec(t.Context(), run.Request{}, nil)
		require.Equal(t, sent, err)
		_, err = c.Runs(t.Context(), job.Filter{})
		require.Equal(t, sent, err)
		require.Equal(t, sent, c.Frames(t.Context(), "x", 0, nil))
		require.Equal(t, sent, c.Health(t.Context()))
	}
}

func TestTokenIsNotCarriedElsewhere(t *testing.T) {
	asked := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer elsewhere.Close()
	for _, c := range serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}) {
		require.Error(t, c.Health(t.Context()))
	}
	require.False(t, asked)
}

func TestNoDaemonIsUnavailableAndNamesTheEndpoint(t *testing.T) {
	for _, endpoint := range []string{"unix:///nonexistent/mcpx.sock", "http://127.0.0.1:1"} {
		c, err := client.New(endpoint, "")
		require.NoError(t, err)
		err = c.Health(t.Context())
		require.ErrorIs(t, err, errdefs.ErrUnavailable)
		var e *run.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, problem.CodeDaemonUnavailable, e.Code)
		require.Contains(t, e.Message, endpoint)
		require.NotContains(t, e.Message, "localhost")
	}
}

func TestStreamThatBreaksOffIsAnError(t *testing.T) {
	for how, finish := range map[string]func(){"cut": func() { panic(http.ErrAbortHandler) }, "ends early": func() {}} {
		for name, c := range serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Mcpx-Run-Id", "r1")
			line(w, 1, run.EventStdout, &run.OutputFrame{Text: "kept"})
			finish()
		}) {
			t.Run(how+"/"+name, func(t *testing.T) {
				result, err := c.Exec(t.Context(), run.Request{}, func(run.Event) error { return nil })
				require.ErrorIs(t, err, errdefs.ErrUnavailable)
				require.Equal(t, "kept", result.Stdout)
			})
		}
	}
}

func TestGarbageIsAnError(t *testing.T) {
	for _, c := range serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "<html>") }) {
		_, err := c.Exec(t.Context(), run.Request{}, func(run.Event) error { return nil })
		require.ErrorIs(t, err, errdefs.ErrUnavailable)
		_, err = c.Run(t.Context(), "x")
		require.ErrorIs(t, err, errdefs.ErrUnavailable)
	}
}

// A caller that gives up has its run cancelled, and still hears its end.
func TestExecCancelsTheRunAndWaitsForItsEnd(t *testing.T) {
	cancelled := make(chan struct{})
	for name, c := range serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/cancel") {
			fmt.Fprintf(w, `{"runId":"r 1","outcome":"accepted","state":%q}`, r.URL.EscapedPath())
			cancelled <- struct{}{}
			return
		}
		w.Header().Set("Mcpx-Run-Id", "r 1")
		line(w, 1, run.EventStart, &run.StartFrame{RunID: "r 1"})
		<-cancelled
		line(w, 2, run.EventEnd, &run.End{RunID: "r 1", State: run.Cancelled})
	}) {
		t.Run(name, func(t *testing.T) {
			ctx, giveUp := context.WithCancel(t.Context())
			result, err := c.Exec(ctx, run.Request{}, func(run.Event) error {
				giveUp()
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, run.Cancelled, result.State)
		})
	}
}

func TestExecHangsUpWhenCancellingFails(t *testing.T) {
	for name, c := range serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/cancel") {
			problem.Write(w, problem.New(errdefs.ErrInternal))
			return
		}
		w.Header().Set("Mcpx-Run-Id", "r1")
		line(w, 1, run.EventStart, &run.StartFrame{RunID: "r1"})
		<-r.Context().Done()
	}) {
		t.Run(name, func(t *testing.T) {
			ctx, giveUp := context.WithCancel(t.Context())
			_, err := c.Exec(ctx, run.Request{}, func(run.Event) error {
				giveUp()
				return nil
			})
			require.ErrorContains(t, err, "cancel run r1")
		})
	}
}

func TestExecGivenUpBeforeTheAnswer(t *testing.T) {
	asked := make(chan struct{})
	for name, c := range serve(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}) {
		t.Run(name, func(t *testing.T) {
			ctx, giveUp := context.WithCancelCause(t.Context())
			why := errors.New("enough")
			go func() {
				<-asked
				giveUp(why)
			}()
			_, err := c.Exec(ctx, run.Request{}, nil)
			require.ErrorIs(t, err, why)
		})
	}
}

func TestErrorOfYieldEndsTheStream(t *testing.T) {
	for name, c := range serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Mcpx-Run-Id", "r1")
		line(w, 1, run.EventStart, &run.StartFrame{RunID: "r1"})
		<-r.Context().Done() // the handler only ends because the client hangs up
	}) {
		t.Run(name, func(t *testing.T) {
			full := errors.New("disk full")
			yield := func(run.Event) error { return full }
			_, err := c.Exec(t.Context(), run.Request{}, yield)
			require.ErrorIs(t, err, full)
			require.ErrorIs(t, c.Frames(t.Context(), "r1", 0, yield), full)
		})
	}
}

func TestFramesAskFromAfter(t *testing.T) {
	for name, c := range serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/v1/runs/a%2Fb/frames" || r.URL.RawQuery != "after=6" {
			http.Error(w, r.URL.String(), http.StatusTeapot)
			return
		}
		line(w, 7, run.EventEnd, &run.End{State: run.Exited})
	}) {
		t.Run(name, func(t *testing.T) {
			var seqs []int64
			require.NoError(t, c.Frames(t.Context(), "a/b", 6, func(e run.Event) error {
				seqs = append(seqs, e.Seq)
				return nil
			}))
			require.Equal(t, []int64{7}, seqs)
		})
	}
}

func TestRunsSendsItsFilter(t *testing.T) {
	for name, c := range serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"runs":[{"runId":%q}],"next":"n"}`, r.URL.Query().Encode())
	}) {
		t.Run(name, func(t *testing.T) {
			page, err := c.Runs(t.Context(), job.Filter{States: []run.State{run.Queued, run.Running}, Label: "a b", Limit: 5, After: "x"})
			require.NoError(t, err)
			require.Equal(t, "after=x&label=a+b&limit=5&state=queued&state=running", page.Runs[0].RunID)
			require.Equal(t, "n", page.Next)
		})
	}
}

func TestStartAsksForATask(t *testing.T) {
	for name, c := range serve(t, func(w http.ResponseWriter, r *http.Request) {
		var req run.Request
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Options.Task == nil || req.Options.Task.TTL != 60_000 {
			http.Error(w, "no task", http.StatusTeapot)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"runId":"r1","state":"queued","exitCode":null}`)
	}) {
		t.Run(name, func(t *testing.T) {
			s, err := c.Start(t.Context(), run.Request{Source: "x"}, time.Minute)
			require.NoError(t, err)
			require.Equal(t, run.Summary{RunID: "r1", State: run.Queued}, s)
		})
	}
}
