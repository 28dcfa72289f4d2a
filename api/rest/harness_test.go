package rest_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mcpx/api/auth"
	"mcpx/api/problem"
	"mcpx/api/rest"
	"mcpx/policies"
)

func TestMain(m *testing.M) {
	// gorm's statement cache starts a goroutine for each database and never ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

const token = "t0ken"

// daemon is a served rest.Server with both kinds of listeners.
type daemon struct {
	t      *testing.T
	jobs   *jobs
	config rest.Config
	server *rest.Server
	socket string
	tcp    string // host:port
	unix   *http.Client
	stop   func() error // ends Serve as SIGTERM does, once
	ready  atomic.Pointer[error]
}

func configOf(t *testing.T, j *jobs) rest.Config {
	return rest.Config{
		Jobs: j, Runs: j, Policies: policies.Default(), Images: shelf{}, Script: inlineScript,
		Tools: newToolbox(), MCP: door{},
		Ready:        func(context.Context) error { return nil },
		Gate:         auth.Gate{Token: auth.NewToken(token)},
		Log:          slog.New(slog.NewTextHandler(io.Discard, nil)),
		DrainTimeout: time.Second,
	}
}

func start(t *testing.T, j *jobs, edit ...func(*rest.Config)) *daemon {
	t.Helper()
	d := &daemon{t: t, jobs: j, socket: filepath.Join(t.TempDir(), "s")}
	c := configOf(t, j)
	c.Ready = func(context.Context) error {
		if err := d.ready.Load(); err != nil {
			return *err
		}
		return nil
	}
	for _, e := range edit {
		e(&c)
	}
	d.config = c
	var err error
	d.server, err = rest.NewServer(c)
	require.NoError(t, err)
	unix, err := net.Listen("unix", d.socket)
	require.NoError(t, err)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d.tcp = tcp.Addr().String()

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- d.server.Serve(ctx, unix, tcp) }()
	stopped := false
	d.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-served
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
	}}
	d.unix = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		for _, id := range j.ids() {
			j.Cancel(ctx, id, context.Canceled) //nolint:errcheck // ends what a test left
		}
		require.NoError(t, d.stop())
		j.running.Wait()
	})
	return d
}

// answer is a response read to its end.
type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
}

// do sends a request over the unix socket.
func (d *daemon) do(method, path, body string, header ...string) answer {
	d.t.Helper()
	return d.read(d.open(d.t.Context(), method, path, strings.NewReader(body), header...))
}

// exec posts a request as JSON.
func (d *daemon) exec(body string, header ...string) answer {
	d.t.Helper()
	return d.do(http.MethodPost, "/v1/exec", body, append([]string{"Content-Type", "application/json"}, header...)...)
}

func (d *daemon) open(ctx context.Context, method, path string, body io.Reader, header ...string) *http.Response {
	d.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, body)
	require.NoError(d.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	res, err := d.unix.Do(req)
	require.NoError(d.t, err)
	return res
}

func (d *daemon) read(res *http.Response) answer {
	d.t.Helper()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(d.t, err)
	return answer{res.StatusCode, res.Header, res.Trailer, string(body)}
}

// problem checks that an answer is a whole problem document and yields it.
func (a answer) problem(t *testing.T) problem.Document {
	t.Helper()
	require.Equal(t, problem.ContentType, a.header.Get("Content-Type"), a.body)
	var d problem.Document
	require.NoError(t, json.Unmarshal([]byte(a.body), &d))
	require.Equal(t, a.status, d.Status)
	require.NotEmpty(t, d.Title)
	require.NotEmpty(t, d.Detail)
	require.Equal(t, "urn:mcpx:problem:"+d.Code, d.Type)
	return d
}

func (j *jobs) ids() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.order...)
}
