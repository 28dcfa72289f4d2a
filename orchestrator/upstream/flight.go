package upstream

import (
	"context"
	"encoding/json"
	"sync"
)

// flight is one request on its way. The transports find it in the request's
// context and note there what the SDK does not tell: the answer's own bytes,
// and how far the request came.
type flight struct {
	mu       sync.Mutex
	token    string
	progress func(done, total float64, message string)
	raw      json.RawMessage // the answer's result, as it was sent
	sent     bool            // a byte of it may have reached the server
	tooLarge bool
	broken   string // why the answer can't be read
	status   int    // of the HTTP answer
	landed   bool
	cancel   context.CancelCauseFunc
	id       json.RawMessage // of the JSON-RPC request, over HTTP
}

type flightKey struct{}

func withFlight(ctx context.Context, f *flight) context.Context {
	return context.WithValue(ctx, flightKey{}, f)
}

func flightFrom(ctx context.Context) *flight {
	f, _ := ctx.Value(flightKey{}).(*flight)
	return f
}

func (f *flight) note(change func(f *flight)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *flight) requestID() json.RawMessage {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id
}

// answered keeps the result of an answer.
func (f *flight) answered(result json.RawMessage) {
	f.note(func(f *flight) { f.raw = result })
}

// land ends the flight: from here on nobody is told of progress.
func (f *flight) land() flightState {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.landed = true
	return flightState{f.raw, f.sent, f.tooLarge, f.broken, f.status}
}

// flightState is what is known of a flight that landed.
type flightState struct {
	raw      json.RawMessage
	sent     bool
	tooLarge bool
	broken   string
	status   int
}

// advance passes progress on. The caller's function is called under the lock,
// so that it is never called after the call returned.
func (f *flight) advance(done, total float64, message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.landed && f.progress != nil {
		f.progress(done, total, message)
	}
}

// flights are those of one connection.
type flights struct {
	mu      sync.Mutex
	byID    map[any]*flight
	byToken map[string]*flight
	// stale is set while the SDK has a change of the tool list to handle.
	stale  bool
	closed bool
}

func newFlights() *flights {
	return &flights{byID: map[any]*flight{}, byToken: map[string]*flight{}}
}

func (fs *flights) start(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.byToken[f.token] = f
	if fs.closed {
		f.cancel(errGone)
	}
}

// close breaks off what is under way, and all that starts later.
func (fs *flights) close() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.closed = true
	for _, f := range fs.byToken {
		f.cancel(errGone)
	}
}

func (fs *flights) end(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.byToken, f.token)
	for id, other := range fs.byID {
		if other == f {
			delete(fs.byID, id)
		}
	}
}

func (fs *flights) sending(id any, f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.byID[id] = f
}

// take finds the flight that an answer ends.
func (fs *flights) take(id any) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.byID[id]
	delete(fs.byID, id)
	return f
}

// only is the one request under way, if there is just one.
func (fs *flights) only() (id any, ok bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if len(fs.byID) != 1 {
		return nil, false
	}
	for id = range fs.byID {
	}
	return id, true
}

func (fs *flights) count() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.byID)
}

func (fs *flights) progress(token any, done, total float64, message string) {
	text, _ := token.(string)
	fs.mu.Lock()
	f := fs.byToken[text]
	fs.mu.Unlock()
	if f != nil {
		f.advance(done, total, message)
	}
}

// changing reports whether a change of the tool list is news to the SDK.
func (fs *flights) changing() bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	news := !fs.stale
	fs.stale = true
	return news
}

func (fs *flights) changed() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.stale = false
}
