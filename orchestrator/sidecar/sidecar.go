// Package sidecar serves one run's socket: the control connection of its init,
// and the HTTP endpoint that its script may call. Each run has a socket of its
// own, so who calls needs no proof and nothing of another run can be reached.
package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
)

// Sidecar is one run's listening socket. It implements engine.Control.
type Sidecar struct {
	server  *http.Server
	log     *slog.Logger
	control chan net.Conn
	done    chan struct{}

	calls chan struct{} // one element for each tool call under way

	mu     sync.Mutex
	bound  *binding // nil while no script runs
	taken  bool     // init has connected; there is only one
	budget int64
}

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
		calls:   make(chan struct{}, maxCalls),
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

// binding is a script that may call.
type binding struct {
	run  Run
	ctx  context.Context // ends what the script has asked for
	work sync.WaitGroup  // what is under way
}

// Bind connects the endpoint with its run. The result takes the run away again:
// it ends what is under way and waits for it, so that nothing is done for a
// script that is over.
func (s *Sidecar) Bind(ctx context.Context, r Run) (release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &binding{run: r, ctx: ctx}
	s.mu.Lock()
	s.bound = b
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.bound = nil
		s.mu.Unlock()
		cancel(errScriptOver)
		b.work.Wait()
	}
}

var errScriptOver = errors.New("the script is over")

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
