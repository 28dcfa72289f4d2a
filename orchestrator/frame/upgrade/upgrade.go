// Package upgrade is the server's side of frame.Dial: it turns an HTTP request
// into a connection of frames.
package upgrade

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"mcpx/orchestrator/frame"
)

// ErrRefused is wrapped by Accept's errors when the request asks for something else.
var ErrRefused = errors.New("not an upgrade to " + frame.UpgradeToken)

const answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + frame.UpgradeToken + "\r\n\r\n"

// Accept answers the request and yields its connection, which the caller has
// to close. On error the request has been answered.
func Accept(w http.ResponseWriter, r *http.Request) (net.Conn, error) {
	if !asked(r) {
		w.Header().Set("Upgrade", frame.UpgradeToken)
		http.Error(w, ErrRefused.Error(), http.StatusUpgradeRequired)
		return nil, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, ErrRefused)
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "this connection can't be upgraded", http.StatusInternalServerError)
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	if _, err := io.WriteString(conn, answer); err != nil {
		return nil, errors.Join(fmt.Errorf("upgrade: %w", err), conn.Close())
	}
	return withBuffered(conn, buffered.Reader)
}

func asked(r *http.Request) bool {
	return r.ProtoAtLeast(1, 1) && r.ContentLength == 0 &&
		hasToken(r.Header.Values("Connection"), "upgrade") && hasToken(r.Header.Values("Upgrade"), frame.UpgradeToken)
}

func hasToken(lines []string, token string) bool {
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// withBuffered puts what the server has read too much before the connection.
func withBuffered(conn net.Conn, b *bufio.Reader) (net.Conn, error) {
	if b.Buffered() == 0 {
		return conn, nil
	}
	early := make([]byte, b.Buffered())
	if _, err := io.ReadFull(b, early); err != nil {
		return nil, errors.Join(fmt.Errorf("upgrade: %w", err), conn.Close())
	}
	return &ahead{Conn: conn, early: early}, nil
}

// ahead is a connection some of whose bytes have been read already.
type ahead struct {
	net.Conn
	early []byte
}

func (a *ahead) Read(p []byte) (int, error) {
	if len(a.early) == 0 {
		return a.Conn.Read(p)
	}
	n := copy(p, a.early)
	a.early = a.early[n:]
	return n, nil
}
