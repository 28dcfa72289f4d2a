package rest

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// Answers may last as long as a run, so there is no deadline for a whole one,
// but one for each step.
const (
	readTimeout = 30 * time.Second
	// writeTimeout is long because a reader that pauses (a pager) is not gone:
	// the kernel tells when it is. This is for peers that vanished without a word.
	writeTimeout = 10 * time.Minute
)

// stepBytes is the most that is written under one deadline.
const stepBytes = 256 << 10

// timed gives every write of the request a deadline of its own.
func (s *Server) timed(c *gin.Context) {
	w := &timedWriter{ResponseWriter: c.Writer, server: http.NewResponseController(serverWriter(c.Writer))}
	w.extend() //nolint:errcheck // the first write tells
	c.Writer = w
	c.Next()
	w.extend() //nolint:errcheck // net/http's own last flush meets it
}

// serverWriter is net/http's writer below gin's, whose Flush yields no error.
func serverWriter(w http.ResponseWriter) http.ResponseWriter {
	if inner, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		return inner.Unwrap()
	}
	return w
}

type timedWriter struct {
	gin.ResponseWriter
	server *http.ResponseController
}

func (w *timedWriter) extend() error {
	return unlessUnsupported(w.server.SetWriteDeadline(time.Now().Add(writeTimeout)))
}

// Write writes p in steps.
func (w *timedWriter) Write(p []byte) (written int, err error) {
	for {
		step := p[written:min(written+stepBytes, len(p))]
		if err := w.extend(); err != nil {
			return written, err
		}
		n, err := w.ResponseWriter.Write(step)
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// WriteString is Write for a string.
func (w *timedWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// FlushError sends what is buffered.
func (w *timedWriter) FlushError() error {
	if err := w.extend(); err != nil {
		return err
	}
	w.WriteHeaderNow()
	return unlessUnsupported(w.server.Flush())
}

// Flush is FlushError for those who do not ask.
func (w *timedWriter) Flush() { w.FlushError() } //nolint:errcheck // the next write tells

// flush sends what has been written to c.
func flush(c *gin.Context) error {
	return http.NewResponseController(c.Writer).Flush()
}

// timedBody gives every read of a request's body a deadline of its own.
type timedBody struct {
	io.Reader
	server *http.ResponseController
}

func bodyOf(c *gin.Context) *timedBody {
	server := http.NewResponseController(c.Writer)
	if w, ok := c.Writer.(*timedWriter); ok {
		server = w.server
	}
	return &timedBody{c.Request.Body, server}
}

func (b *timedBody) Read(p []byte) (int, error) {
	if err := unlessUnsupported(b.server.SetReadDeadline(time.Now().Add(readTimeout))); err != nil {
		return 0, err
	}
	return b.Reader.Read(p)
}

// release takes the deadline away: from now on, net/http waits in a read of
// its own for the caller to go, and that may take as long as the run.
func (b *timedBody) release() error {
	return unlessUnsupported(b.server.SetReadDeadline(time.Time{}))
}

// unlessUnsupported: a writer that is no connection has no deadlines.
func unlessUnsupported(err error) error {
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}
