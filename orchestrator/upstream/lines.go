package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// lines is a connection of one JSON-RPC message a line. Where the SDK's own
// gives up, it goes on: what a server prints that is no message counts as
// stderr, and an answer that is too long or damaged fails its own call only.
type lines struct {
	in      *bufio.Reader
	out     writer
	limit   int
	flights *flights
	noise   io.Writer
	close   func()

	queue   []jsonrpc.Message // rest of a batch
	writeMu sync.Mutex
	failed  error // a line was written in part
	once    sync.Once
}

// writer is a pipe's end whose writes can be broken off.
type writer interface {
	io.Writer
	SetWriteDeadline(time.Time) error
}

func (l *lines) SessionID() string { return "" }

func (l *lines) Close() error {
	l.once.Do(l.close)
	return nil
}

// Write sends one message. When ctx ends in the middle of a line the
// connection is of no more use, for the line can't be taken back.
func (l *lines) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	n, err := l.interruptible(ctx, append(data, '\n'))
	if err != nil && n > 0 {
		l.failed = fmt.Errorf("write to server: %w", err)
		l.Close() //nolint:errcheck // always nil
	}
	return err
}

func (l *lines) interruptible(ctx context.Context, data []byte) (int, error) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		l.out.SetWriteDeadline(time.Unix(1, 0)) //nolint:errcheck // a closed pipe fails the write by itself
	})
	n, err := l.out.Write(data)
	if !stop() {
		<-done
		l.out.SetWriteDeadline(time.Time{}) //nolint:errcheck // as above
	}
	return n, err
}

// Read yields the next message.
func (l *lines) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		if len(l.queue) > 0 {
			next := l.queue[0]
			l.queue = l.queue[1:]
			return next, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		line, cut, err := l.line()
		if err != nil {
			return nil, err
		}
		msg, err := l.message(line, cut)
		if msg != nil || err != nil {
			return msg, err
		}
	}
}

// cutTail is what is kept of the end of a line that is too long: enough to
// find the request's id, which some servers write last.
const cutTail = 256

// line reads up to a newline. Of a line that is too long the beginning and the
// end are kept, and cut is set.
func (l *lines) line() (line []byte, cut bool, err error) {
	for {
		part, err := l.in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > l.limit {
			cut = true
			keep := min(cutTail, l.limit/2)
			line = append(line[:keep:keep], line[len(line)-keep:]...)
		}
		if err == nil {
			return line, cut, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if len(bytes.TrimSpace(line)) > 0 && errors.Is(err, io.EOF) {
				return line, cut, nil
			}
			return nil, false, err
		}
	}
}

// message is nil for a line that holds none.
func (l *lines) message(line []byte, cut bool) (jsonrpc.Message, error) {
	line = bytes.TrimSpace(line)
	if cut {
		return l.unreadable(line, func(f *flight) { f.tooLarge = true })
	}
	if len(line) == 0 {
		return nil, nil
	}
	if line[0] == '[' && json.Valid(line) {
		return l.batch(line)
	}
	if line[0] != '{' {
		return nil, l.noisy(line)
	}
	msg, err := jsonrpc.DecodeMessage(line)
	if err == nil {
		return msg, nil
	}
	if json.Valid(line) && !bytes.Contains(line, []byte(`"jsonrpc"`)) {
		return nil, l.noisy(line) // a log line that is JSON
	}
	return l.unreadable(line, func(f *flight) { f.broken = "it is not a JSON-RPC message" })
}

func (l *lines) noisy(line []byte) error {
	_, err := fmt.Fprintf(l.noise, "%s\n", line)
	return err
}

func (l *lines) batch(line []byte) (jsonrpc.Message, error) {
	var parts []json.RawMessage
	if json.Unmarshal(line, &parts) != nil {
		return nil, l.noisy(line)
	}
	for _, part := range parts {
		msg, err := jsonrpc.DecodeMessage(part)
		if err != nil {
			return nil, l.noisy(line)
		}
		l.queue = append(l.queue, msg)
	}
	return nil, nil
}

// unreadable fails the request that a bad line answers. When it can't be told
// which one that is the connection ends, lest a caller waits for ever; when
// there is none it is noise.
func (l *lines) unreadable(line []byte, why func(*flight)) (jsonrpc.Message, error) {
	id, known := answerID(line)
	if !known {
		id, known = l.flights.only()
	}
	if known {
		if f := l.flights.take(id); f != nil {
			f.note(why)
		}
		parsed, err := jsonrpc.MakeID(asNumber(id))
		if err == nil {
			return &jsonrpc.Response{ID: parsed, Error: &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "answer can't be read"}}, nil
		}
	}
	if l.flights.count() == 0 {
		return nil, l.noisy(line[:min(len(line), cutTail)])
	}
	return nil, errors.New("server sent a line that is no JSON-RPC message")
}

// asNumber is what MakeID takes.
func asNumber(id any) any {
	if n, ok := id.(int64); ok {
		return float64(n)
	}
	return id
}

// answerID finds the id at the beginning or at the very end of a message, where
// it can't be a part of the result. Our ids are numbers.
func answerID(line []byte) (any, bool) {
	head := regexp.MustCompile(`^\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,`)
	tail := regexp.MustCompile(`[,{]\s*"id"\s*:\s*(\d{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}$`)
	for _, re := range []*regexp.Regexp{head, tail} {
		if found := re.FindSubmatch(line); found != nil {
			n, err := strconv.ParseInt(string(found[1]), 10, 64)
			return n, err == nil
		}
	}
	return nil, false
}
