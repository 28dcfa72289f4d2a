package upgrade_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mcpx/orchestrator/frame"
	"mcpx/orchestrator/frame/upgrade"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type accepted struct {
	conn net.Conn
	err  error
}

// serve listens on path and yields what Accept made of each request.
func serve(t *testing.T, path string) <-chan accepted {
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	out := make(chan accepted, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+frame.ControlPath, func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrade.Accept(w, r)
		out <- accepted{conn, err}
	})
	server := &http.Server{Handler: mux}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	return out
}

func TestDialReachesAccept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	got := serve(t, path)
	client, err := frame.Dial(t.Context(), path)
	require.NoError(t, err)
	defer client.Close()
	server := <-got
	require.NoError(t, server.err)
	defer server.conn.Close()

	require.NoError(t, frame.NewWriter(client).Write(frame.Stdout, []byte("up")))
	f, err := frame.NewReader(server.conn).Next()
	require.NoError(t, err)
	require.Equal(t, "up", string(f.Payload))
	require.NoError(t, frame.NewWriter(server.conn).Write(frame.Stdin, []byte("down")))
	f, err = frame.NewReader(client).Next()
	require.NoError(t, err)
	require.Equal(t, "down", string(f.Payload))
}

func TestBytesBehindTheRequestAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	got := serve(t, path)
	client, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer client.Close()
	_, err = io.WriteString(client, "GET /v1/control HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: mcpx-frame/1\r\n\r\nearly")
	require.NoError(t, err)
	server := <-got
	require.NoError(t, server.err)
	defer server.conn.Close()
	_, err = io.WriteString(client, "+late")
	require.NoError(t, err)
	text := make([]byte, len("early+late"))
	_, err = io.ReadFull(server.conn, text)
	require.NoError(t, err)
	require.Equal(t, "early+late", string(text))
}

func TestOtherRequestsAreRefused(t *testing.T) {
	for name, headers := range map[string]string{
		"no upgrade":       "",
		"other protocol":   "Connection: Upgrade\r\nUpgrade: websocket\r\n",
		"other version":    "Connection: Upgrade\r\nUpgrade: mcpx-frame/2\r\n",
		"no connection":    "Upgrade: mcpx-frame/1\r\n",
		"with a body":      "Connection: Upgrade\r\nUpgrade: mcpx-frame/1\r\nContent-Length: 1\r\n",
		"with chunks":      "Connection: Upgrade\r\nUpgrade: mcpx-frame/1\r\nTransfer-Encoding: chunked\r\n",
		"longer token":     "Connection: Upgrade\r\nUpgrade: mcpx-frame/12\r\n",
		"token in a token": "Connection: xUpgrade\r\nUpgrade: mcpx-frame/1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			got := serve(t, path)
			client, err := net.Dial("unix", path)
			require.NoError(t, err)
			defer client.Close()
			_, err = fmt.Fprintf(client, "GET /v1/control HTTP/1.1\r\nHost: x\r\n%s\r\n", headers)
			require.NoError(t, err)
			require.NoError(t, client.(*net.UnixConn).CloseWrite()) // a server waits for a body
			require.ErrorIs(t, (<-got).err, upgrade.ErrRefused)
			status, err := bufio.NewReader(client).ReadString('\n')
			require.NoError(t, err)
			require.Contains(t, status, "426")
		})
	}
}

// answer is a server that says text to whoever connects, whatever is asked.
func answer(t *testing.T, path, text string) {
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		http.ReadRequest(bufio.NewReader(conn)) //nolint:errcheck // whatever is asked
		io.WriteString(conn, text)              //nolint:errcheck // the client may have enough
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
}

func TestDialTellsWhyNot(t *testing.T) {
	for name, c := range map[string]struct{ answer, want string }{
		"refused":       {"HTTP/1.1 409 Conflict\r\n\r\n", "409"},
		"no HTTP":       {"SSH-2.0-x\r\n\r\n", "SSH"},
		"cut":           {"HTTP/1.1 101 Switching", "EOF"},
		"without end":   {"HTTP/1.1 101 x\r\n" + strings.Repeat("a: b\r\n", 1<<10), "no end"},
		"no word":       {"", "EOF"},
		"101 elsewhere": {"HTTP/1.1 200 OK\r\nX: HTTP/1.1 101 \r\n\r\n", "200"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			answer(t, path, c.answer)
			_, err := frame.Dial(t.Context(), path)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := frame.Dial(t.Context(), filepath.Join(t.TempDir(), "none"))
	require.Error(t, err)
}

func TestDialEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer listener.Close()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		http.ReadRequest(bufio.NewReader(conn)) //nolint:errcheck // it has asked: now it waits
		cancel(why)
		io.Copy(io.Discard, conn) //nolint:errcheck // until it hangs up
		conn.Close()
	}()
	_, err = frame.Dial(ctx, path)
	require.ErrorIs(t, err, why)
}

func TestDialTakesLongPaths(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	require.NoError(t, os.Mkdir(dir, 0o755))
	t.Chdir(dir)
	got := serve(t, "s")
	client, err := frame.Dial(t.Context(), filepath.Join(dir, "s"))
	require.NoError(t, err)
	defer client.Close()
	server := <-got
	require.NoError(t, server.err)
	server.conn.Close()
}
