package upstream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
)

// tripper puts the configured headers on requests to the server, and looks
// after the answers of those that belong to a flight: it keeps the bytes of the
// result, and turns what is too long or damaged into an error of that request.
// The SDK would end the whole session over it.
type tripper struct {
	base    http.RoundTripper
	host    string // headers hold secrets and go to this host only
	headers map[string]string
	limit   int
	// apart: answers come on a stream of their own, not as those of requests.
	apart bool
}

func newHTTPClient(s Server, limit int) (*http.Client, func(), error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, nil, fmt.Errorf("url: %w", errors.Unwrap(err))
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.ResponseHeaderTimeout = 0 // a call may take its time, the context bounds it
	client := &http.Client{
		Transport: &tripper{base: base, host: u.Host, headers: s.Headers, limit: limit, apart: s.Transport == SSE},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) >= maxRedirects || req.URL.Host != u.Host {
				return fmt.Errorf("it redirects to %s", req.URL.Host)
			}
			return nil
		},
	}
	return client, base.CloseIdleConnections, nil
}

const maxRedirects = 5

// RoundTrip implements http.RoundTripper.
func (t *tripper) RoundTrip(req *http.Request) (*http.Response, error) {
	f := flightFrom(req.Context())
	id := requestID(req)
	ctx := req.Context()
	call := f != nil && id != nil
	if call {
		f.note(func(f *flight) { f.id = id })
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteHeaders: func() { f.note(func(f *flight) { f.sent = true }) },
		})
	}
	req = req.Clone(ctx)
	if req.URL.Host == t.host {
		for name, value := range t.headers {
			req.Header.Set(name, value)
		}
	}
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if call {
		f.note(func(f *flight) { f.status = resp.StatusCode })
	} else if f != nil && req.Method == http.MethodGet {
		id = f.requestID() // the stream of an answer that broke off is taken up again
	}
	return t.checked(resp, f, id), nil
}

// requestID is nil for what is no JSON-RPC request.
func requestID(req *http.Request) json.RawMessage {
	if req.Method != http.MethodPost || req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	defer body.Close()
	var msg struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.NewDecoder(body).Decode(&msg) != nil || msg.Method == "" {
		return nil
	}
	return msg.ID
}

func (t *tripper) checked(resp *http.Response, f *flight, id json.RawMessage) *http.Response {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind = ""
	}
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	switch {
	case kind == "text/event-stream" && ok:
		if f == nil {
			f = &flight{} // nobody waits for what comes here
		}
		resp.Body = &events{body: resp.Body, in: bufio.NewReader(resp.Body), limit: t.limit, flight: f, id: id}
	case f != nil && id != nil && ok && !t.apart:
		resp.Body = t.whole(resp.Body, f, id)
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
	default:
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, int64(t.limit)), resp.Body}
	}
	return resp
}

// whole reads an answer that is one JSON document.
func (t *tripper) whole(body io.ReadCloser, f *flight, id json.RawMessage) io.ReadCloser {
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, int64(t.limit)+1))
	switch {
	case err != nil:
		return io.NopCloser(io.MultiReader(bytes.NewReader(failure(id, f, func(f *flight) { f.broken = "it broke off" }))))
	case len(text) > t.limit:
		text = failure(id, f, func(f *flight) { f.tooLarge = true })
	case len(bytes.TrimSpace(text)) > 0 && !keep(text, f, id):
		text = failure(id, f, func(f *flight) { f.broken = "it is not a JSON-RPC message" })
	}
	return io.NopCloser(bytes.NewReader(text))
}

// keep notes the result if msg is the answer to id; it reports whether msg is
// a message at all.
func keep(msg []byte, f *flight, id json.RawMessage) bool {
	var m struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result"`
	}
	if json.Unmarshal(msg, &m) != nil || m.Version != "2.0" {
		return false
	}
	if m.Result != nil && (id == nil || bytes.Equal(m.ID, id)) {
		f.answered(m.Result)
	}
	return true
}

// failure is an error message in the place of the answer to id.
func failure(id json.RawMessage, f *flight, why func(*flight)) []byte {
	f.note(why)
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32700,"message":"answer can't be read"}}`, id)
}

// events reads an event stream and passes whole events on.
type events struct {
	body   io.ReadCloser
	in     *bufio.Reader
	limit  int
	flight *flight
	id     json.RawMessage
	ready  []byte
	err    error
}

func (e *events) Close() error { return e.body.Close() }

func (e *events) Read(p []byte) (int, error) {
	for len(e.ready) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.ready, e.err = e.next()
	}
	n := copy(p, e.ready)
	e.ready = e.ready[n:]
	return n, nil
}

// next reads up to the blank line that ends an event.
func (e *events) next() ([]byte, error) {
	var event, data []byte
	start := 0
	for {
		part, err := e.in.ReadSlice('\n')
		event = append(event, part...)
		if len(event) > e.limit {
			return e.instead(func(f *flight) { f.tooLarge = true })
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		line := bytes.TrimRight(event[start:], "\r\n")
		start = len(event)
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, bytes.TrimSpace(value)...), '\n')
		}
		if len(line) > 0 && err == nil {
			continue
		}
		if data = bytes.TrimSpace(data); len(data) > 0 && e.id != nil && !keep(data, e.flight, e.id) {
			if err != nil {
				return nil, err // cut off in the middle: no answer
			}
			return e.instead(func(f *flight) { f.broken = "it is not a JSON-RPC message" })
		}
		if swallowed(data, e.flight) && err == nil {
			event, data, start = event[:0], nil, 0
			continue
		}
		return event, err
	}
}

// swallowed takes notifications out of the stream: progress, to be told before
// the answer that follows it is, and those that the SDK would queue for nothing.
func swallowed(data []byte, f *flight) bool {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if len(data) == 0 || json.Unmarshal(data, &m) != nil || m.Method == "" || m.ID != nil {
		return false
	}
	if p, ok := parseProgress(m.Params); ok && m.Method == methodProgress && p.Token == f.token {
		f.advance(p.Progress, p.Total, p.Message)
		return true
	}
	return !wanted(m.Method)
}

func (e *events) instead(why func(*flight)) ([]byte, error) {
	if e.id == nil {
		e.flight.note(why)
		return nil, io.EOF
	}
	return fmt.Appendf(nil, "data: %s\n\n", failure(e.id, e.flight, why)), io.EOF
}
