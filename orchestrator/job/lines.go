package job

import (
	"bytes"
	"io"
)

// lines reads whole lines of any length; an unfinished one at the end is EOF,
// and is read again when it has grown.
type lines struct {
	r     io.Reader
	buf   []byte
	begin int // of what has not been yielded
}

func newLines(r io.Reader) *lines { return &lines{r: r} }

// next yields a line without its end; it is valid until the next call.
func (l *lines) next() ([]byte, error) {
	searched := l.begin
	for {
		if i := bytes.IndexByte(l.buf[searched:], '\n'); i >= 0 {
			line := l.buf[l.begin : searched+i]
			l.begin = searched + i + 1
			return line, nil
		}
		searched = l.makeRoom()
		n, err := l.r.Read(l.buf[len(l.buf):cap(l.buf)])
		l.buf = l.buf[:len(l.buf)+n]
		if n == 0 && err != nil {
			return nil, err
		}
	}
}

const (
	leastRoom  = 4 << 10
	firstLines = 64 << 10
)

// makeRoom makes room to read into and returns where the unsearched part begins.
func (l *lines) makeRoom() int {
	rest := len(l.buf) - l.begin
	if l.begin > 0 {
		copy(l.buf, l.buf[l.begin:])
		l.buf, l.begin = l.buf[:rest], 0
	}
	if cap(l.buf)-rest < leastRoom {
		grown := make([]byte, rest, max(firstLines, 2*cap(l.buf)))
		copy(grown, l.buf)
		l.buf = grown
	}
	return rest
}
