package docker_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine/docker"
)

// daemon answers like Docker, as far as a test has put answers in. It is for
// what a real one does rarely, or only when it is broken.
type daemon struct {
	t       *testing.T
	host    string
	version string // of the API

	mu      sync.Mutex
	answers map[string][]answer // by "METHOD /path"; the last one stays
	asked   []string
	bodies  map[string]string
}

// answer is a status with a body, or something else that a daemon may do.
type answer struct {
	status int
	body   any
	do     func(w http.ResponseWriter, r *http.Request)
}

func newDaemon(t *testing.T) *daemon {
	dir := shortDir(t)
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	d := &daemon{t: t, host: "unix://" + socket, version: "1.41", answers: map[string][]answer{}, bodies: map[string]string{}}
	server := &http.Server{Handler: d}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	d.on("GET", "/images/i/json", answer{200, map[string]any{"Id": "sha256:i", "Size": 7, "Config": map[string]any{
		"Env": []string{"A=1"}, "Labels": map[string]string{"mcpx.init.protocol": "1"},
	}}, nil})
	d.on("POST", "/containers/create", answer{201, map[string]any{"Id": "c1"}, nil})
	d.on("POST", "/containers/c1/start", answer{status: 204})
	d.on("DELETE", "/containers/c1", answer{status: 204})
	return d
}

func (d *daemon) on(method, path string, all ...answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers[method+" "+path] = all
}

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/_ping" {
		w.Header().Set("Api-Version", d.version)
		return
	}
	key := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v"+d.version)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		d.t.Error(err)
	}
	a := d.next(key, string(body))
	if a.do != nil {
		a.do(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	if a.body != nil {
		json.NewEncoder(w).Encode(a.body) //nolint:errcheck // the engine may have gone
	}
}

func (d *daemon) next(key, body string) answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, key)
	d.bodies[key] = body
	left := d.answers[key]
	if len(left) == 0 {
		return failure(404, "no answer to "+key)
	}
	if len(left) > 1 {
		d.answers[key] = left[1:]
	}
	return left[0]
}

// count is how often key was asked.
func (d *daemon) count(key string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, asked := range d.asked {
		if asked == key {
			n++
		}
	}
	return n
}

func (d *daemon) body(key string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bodies[key]
}

// engine makes an engine that asks this daemon.
func (d *daemon) engine(c docker.Config) *docker.Engine {
	c.Host, c.InitPath = d.host, filepath.Join(d.t.TempDir(), "init")
	require.NoError(d.t, os.WriteFile(c.InitPath, nil, 0o755))
	e, err := docker.New(c)
	require.NoError(d.t, err)
	d.t.Cleanup(func() { require.NoError(d.t, e.Close()) })
	return e
}

func failure(status int, message string) answer {
	return answer{status, map[string]string{"message": message}, nil}
}

// hangUp closes the connection instead of an answer.
func hangUp() answer {
	return answer{do: func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	}}
}

// silence never answers.
func silence() answer {
	return answer{do: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }}
}
