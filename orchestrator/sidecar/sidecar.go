// Package sidecar serves one run's socket: the control connection of its init,
// and the HTTP endpoint that its script may call. Each run has a socket of its
// own, so who calls needs no proof and nothing of another run can be reached.
package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/frame"
	"mcpx/orchestrator/frame/upgrade"
)

// Run is what the endpoint does on behalf of the script.
type Run interface {
	// Emit hands a JSON value to the run's readers.
	Emit(value json.RawMessage) error
	// Log tells the run's readers a line; level is debug, info, warn or error.
	Log(level, message string) error
}

// Sidecar is one run's listening socket. It implements engine.Control.
type Sidecar struct {
	server  *http.Server
	log     *slog.Logger
	control chan net.Conn
	done    chan struct{}

	mu     sync.Mutex
	run    Run
	taken  bool // init has connected; there is only one
	budget int64
}

// Limits of what one script may send over its endpoint.
const (
	maxBody   = 1 << 20 // one emit or log, bytes
	maxTotal  = 8 << 20 // all of them in one run, bytes
	entryCost = 256     // what an entry counts at least, so that empty ones are bounded too
)

// Listen opens dir/mcpx.sock, connectable by any uid that can reach dir. The
// script's routes answer 503 until Bind.
func Listen(dir string, log *slog.Logger) (*Sidecar, error) {
	listener, err := listenIn(dir)
	if err != nil {
		return nil, fmt.Errorf("run socket in %s: %w", dir, err)
	}
	s := &Sidecar{
		log:     log,
		control: make(chan net.Conn, 1),
		done:    make(chan struct{}),
		budget:  maxTotal,
	}
	s.server = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(s.done)
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("run socket ended", "dir", dir, "error", err)
		}
	}()
	return s, nil
}

// listenIn binds through the directory's descriptor: a socket's path may have
// 107 bytes only, and state directories can be deep.
func listenIn(dir string) (net.Listener, error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	short := fmt.Sprintf("/proc/self/fd/%d/%s", root.Fd(), engine.SocketName)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // the short path is void by then; the directory goes as a whole
	if err := os.Chmod(filepath.Join(dir, engine.SocketName), 0o666); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// Bind connects the endpoint with its run; nil takes it away again.
func (s *Sidecar) Bind(r Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = r
}

// Accept yields init's connection, once.
func (s *Sidecar) Accept(ctx context.Context) (net.Conn, error) {
	select {
	case conn := <-s.control:
		return conn, nil
	case <-s.done:
		return nil, fmt.Errorf("run socket closed before init connected: %w", errdefs.ErrUnavailable)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close ends all connections but init's once Accept has yielded it, which is the engine's.
func (s *Sidecar) Close() error {
	err := s.server.Close()
	<-s.done
	select {
	case conn := <-s.control:
		conn.Close()
	default:
	}
	return err
}

func (s *Sidecar) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+frame.ControlPath, s.serveControl)
	mux.HandleFunc("POST /v1/emit", s.serveEmit)
	mux.HandleFunc("POST /v1/log", s.serveLog)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "not_found", r.Method+" "+r.URL.Path+" is not served here")
	})
	return mux
}

// serveControl hands the first caller's connection to the engine. That caller
// is init, for it connects before any byte of the script runs.
func (s *Sidecar) serveControl(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	taken := s.taken
	s.taken = true
	s.mu.Unlock()
	if taken {
		refuse(w, http.StatusConflict, "conflict", "init is connected")
		return
	}
	conn, err := upgrade.Accept(w, r)
	if err != nil {
		s.log.Warn("init's connection was not upgraded", "error", err)
		return
	}
	s.control <- conn
}

func (s *Sidecar) serveEmit(w http.ResponseWriter, r *http.Request) {
	s.withBody(w, r, func(run Run, body []byte) error {
		if !json.Valid(body) {
			return errNotJSON
		}
		return run.Emit(body)
	})
}

func (s *Sidecar) serveLog(w http.ResponseWriter, r *http.Request) {
	s.withBody(w, r, func(run Run, body []byte) error {
		var line struct {
			Level   string `json:"level"`
			Message string `json:"message"`
		}
		if err := json.Unmarshal(body, &line); err != nil {
			return errNotJSON
		}
		switch line.Level {
		case "":
			line.Level = "info"
		case "debug", "info", "warn", "error":
		default:
			return errLevel
		}
		return run.Log(line.Level, line.Message)
	})
}

var (
	errNotJSON = errors.New("the body is not JSON")
	errLevel   = errors.New("level is one of debug, info, warn, error")
)

func (s *Sidecar) withBody(w http.ResponseWriter, r *http.Request, do func(Run, []byte) error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("one entry has at most %d bytes", maxBody))
		return
	}
	run, err := s.charge(len(body))
	if err != nil {
		refuse(w, http.StatusTooManyRequests, "too_large", err.Error())
		return
	}
	if run == nil {
		refuse(w, http.StatusServiceUnavailable, "not_running", "no script runs here")
		return
	}
	switch err := do(run, body); {
	case errors.Is(err, errNotJSON), errors.Is(err, errLevel):
		refuse(w, http.StatusBadRequest, "invalid_body", err.Error())
	case err != nil:
		refuse(w, http.StatusInternalServerError, "internal", "the entry was not recorded")
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// charge takes an entry's size off the run's budget.
func (s *Sidecar) charge(size int) (Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budget -= max(int64(size), entryCost)
	if s.budget < 0 {
		return nil, fmt.Errorf("emits and logs of one run have at most %d bytes together", maxTotal)
	}
	return s.run, nil
}

// refuse answers with an RFC 9457 problem.
func refuse(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{ //nolint:errcheck // the script may have hung up
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail, "code": code,
	})
}

var _ engine.Control = (*Sidecar)(nil)
