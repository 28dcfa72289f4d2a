package endpoint

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"mcpx/orchestrator/frame"
)

// request is one HTTP request. Init has no net/http, for that would make it
// three times as large.
type request struct {
	method, path, contentType string
	body                      io.Reader // nil for none
	size                      int64     // -1 when it is not known
}

// response is an answer whose body is still to be read.
type response struct {
	status int
	body   io.Reader
	conn   net.Conn
}

// Limits of what is read of an answer's head.
const (
	maxLine    = 8 << 10
	maxHeaders = 100
)

// send makes the request, once, and reads the answer's head.
func send(ctx context.Context, socket string, r request) (*response, error) {
	conn, err := frame.DialSocket(ctx, socket)
	if err != nil {
		return nil, err
	}
	sent := write(conn, r)
	answer, err := head(bufio.NewReaderSize(conn, 64<<10))
	if err != nil {
		conn.Close()
		// A refusal comes before the body is read whole, and then the writing fails.
		return nil, errors.Join(sent, err)
	}
	answer.conn = conn
	return answer, nil
}

func write(conn net.Conn, r request) error {
	w := bufio.NewWriterSize(conn, 64<<10)
	fmt.Fprintf(w, "%s %s HTTP/1.1\r\nHost: mcpx\r\nConnection: close\r\n", r.method, r.path)
	if r.contentType != "" {
		fmt.Fprintf(w, "Content-Type: %s\r\n", r.contentType)
	}
	var err error
	switch {
	case r.body == nil:
		_, err = io.WriteString(w, "\r\n")
	case r.size >= 0:
		fmt.Fprintf(w, "Content-Length: %d\r\n\r\n", r.size)
		_, err = io.CopyN(w, r.body, r.size)
	default:
		_, err = io.WriteString(w, "Transfer-Encoding: chunked\r\n\r\n")
		if err == nil {
			err = writeChunks(w, r.body)
		}
	}
	if err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	return w.Flush()
}

func writeChunks(w *bufio.Writer, body io.Reader) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			fmt.Fprintf(w, "%x\r\n", n)
			w.Write(buffer[:n]) //nolint:errcheck // the writer keeps its first error
			if _, err := io.WriteString(w, "\r\n"); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			_, err = io.WriteString(w, "0\r\n\r\n")
			return err
		}
		if err != nil {
			return err
		}
	}
}

// head reads status and headers, and finds out how the body ends.
func head(r *bufio.Reader) (*response, error) {
	first, err := line(r)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	fields := strings.SplitN(first, " ", 3)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "HTTP/1.") {
		return nil, fmt.Errorf("read the answer: it begins with %.80q", first)
	}
	status, err := strconv.Atoi(fields[1])
	if err != nil {
		return nil, fmt.Errorf("read the answer: status %.80q", fields[1])
	}
	answer := &response{status: status, body: r}
	for range maxHeaders {
		text, err := line(r)
		if err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		if text == "" {
			return answer, nil
		}
		if err := answer.header(text, r); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("read the answer: too many headers")
}

func (a *response) header(text string, r *bufio.Reader) error {
	name, value, _ := strings.Cut(text, ":")
	value = strings.TrimSpace(value)
	switch strings.ToLower(name) {
	case "content-length":
		size, err := strconv.ParseInt(value, 10, 64)
		if err != nil || size < 0 {
			return fmt.Errorf("read the answer: length %.80q", value)
		}
		a.body = &exactly{r, size}
	case "transfer-encoding":
		if !strings.EqualFold(value, "chunked") {
			return fmt.Errorf("read the answer: encoding %.80q", value)
		}
		a.body = &chunks{r: r}
	}
	return nil
}

// line reads up to a newline, which it leaves out.
func line(r *bufio.Reader) (string, error) {
	var text []byte
	for {
		part, err := r.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case len(text) > maxLine:
			return "", errors.New("a line is too long")
		case err == nil:
			return strings.TrimRight(string(text), "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return "", unexpected(err)
		}
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// exactly tells a body that was cut off from one that ended.
type exactly struct {
	r    io.Reader
	left int64
}

func (e *exactly) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if err != nil && e.left > 0 {
		return n, unexpected(err)
	}
	return n, nil
}

// chunks reads a body of which the length was not known when it was begun.
type chunks struct {
	r    *bufio.Reader
	left int64
	done bool
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.done {
		return 0, io.EOF
	}
	if c.left == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
		if c.done {
			return 0, io.EOF
		}
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if err != nil {
		return n, unexpected(err)
	}
	if c.left == 0 {
		if text, err := line(c.r); err != nil || text != "" {
			return n, errors.Join(errors.New("a chunk has no end"), err)
		}
	}
	return n, nil
}

func (c *chunks) next() error {
	text, err := line(c.r)
	if err != nil {
		return err
	}
	size, _, _ := strings.Cut(text, ";")
	c.left, err = strconv.ParseInt(strings.TrimSpace(size), 16, 64)
	if err != nil || c.left < 0 {
		return fmt.Errorf("a chunk of length %.80q", size)
	}
	if c.left > 0 {
		return nil
	}
	c.done = true
	for range maxHeaders {
		if text, err = line(c.r); err != nil || text == "" {
			return err
		}
	}
	return errors.New("too many trailers")
}
