package frame

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// How an HTTP connection to a run's socket becomes one of frames: Dial is the
// side that asks. The side that grants is package frame/upgrade, so that init
// need not contain net/http.
const (
	ControlPath  = "/v1/control"
	UpgradeToken = "mcpx-frame/1"
)

const (
	upgradeRequest = "GET " + ControlPath + " HTTP/1.1\r\nHost: mcpx\r\nConnection: Upgrade\r\nUpgrade: " + UpgradeToken + "\r\n\r\n"
	maxAnswer      = 4 << 10
)

// Dial connects to the unix socket at path and upgrades the connection. ctx
// bounds the dialling, not the connection.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	conn, err := DialSocket(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := request(ctx, conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("control connection on %s: %w", path, err)
	}
	return conn, nil
}

func request(ctx context.Context, conn net.Conn) error {
	interrupt := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	err := upgrade(conn)
	if !interrupt() {
		return context.Cause(ctx)
	}
	return err
}

// upgrade reads the answer byte by byte: what follows it are frames already.
func upgrade(conn io.ReadWriter) error {
	if _, err := io.WriteString(conn, upgradeRequest); err != nil {
		return err
	}
	var answer []byte
	for !bytes.HasSuffix(answer, []byte("\r\n\r\n")) {
		if len(answer) == maxAnswer {
			return errors.New("the answer to the upgrade has no end")
		}
		var b [1]byte
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return fmt.Errorf("answer to the upgrade: %w", err)
		}
		answer = append(answer, b[0])
	}
	status, _, _ := strings.Cut(string(answer), "\r\n")
	if !strings.HasPrefix(status, "HTTP/1.1 101 ") {
		return fmt.Errorf("upgrade refused: %q", status)
	}
	return nil
}

// maxSocketPath is what fits into a unix socket's address on Linux.
const maxSocketPath = 107

// DialSocket connects to the unix socket at path, which may be longer than an
// address: then its directory's descriptor stands for the directory.
func DialSocket(ctx context.Context, path string) (net.Conn, error) {
	if len(path) > maxSocketPath {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		path = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}
