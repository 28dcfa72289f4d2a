package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/frame"
	"mcpx/orchestrator/frame/upgrade"
)

// control is the least that an init can connect to.
type control struct {
	conns  chan net.Conn
	server *http.Server
}

// listen opens the socket of a control directory.
func listen(t testing.TB, dir string) *control {
	t.Helper()
	c := &control{conns: make(chan net.Conn, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+frame.ControlPath, c.serve)
	c.server = &http.Server{Handler: mux}
	listener := listenIn(t, dir)
	served := make(chan error, 1)
	go func() { served <- c.server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, c.server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
		c.drop()
	})
	return c
}

// listenIn goes by the directory's descriptor: the path may be too long for a socket.
func listenIn(t testing.TB, dir string) net.Listener {
	t.Helper()
	root, err := os.Open(dir)
	require.NoError(t, err)
	defer root.Close()
	short := fmt.Sprintf("/proc/self/fd/%d/%s", root.Fd(), engine.SocketName)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	require.NoError(t, err)
	listener.SetUnlinkOnClose(false)
	require.NoError(t, os.Chmod(filepath.Join(dir, engine.SocketName), 0o666))
	return listener
}

func (c *control) serve(w http.ResponseWriter, r *http.Request) {
	conn, err := upgrade.Accept(w, r)
	if err != nil {
		return
	}
	select {
	case c.conns <- conn:
	default:
		conn.Close()
	}
}

// drop closes a connection that nobody has taken.
func (c *control) drop() {
	select {
	case conn := <-c.conns:
		conn.Close()
	default:
	}
}

// Accept yields init's connection.
func (c *control) Accept(ctx context.Context) (net.Conn, error) {
	select {
	case conn := <-c.conns:
		return conn, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// deaf is a Control to which nothing ever connects. It tells when it is asked.
type deaf struct{ asked func() }

func (d deaf) Accept(ctx context.Context) (net.Conn, error) {
	if d.asked != nil {
		d.asked()
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// broken is a Control that fails.
type broken struct{}

var errBroken = errors.New("broken on purpose")

func (broken) Accept(context.Context) (net.Conn, error) { return nil, errBroken }
