package upstream

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Notifications that are looked at; a server may send any others as fast as it
// likes, and the SDK would queue them without bound.
const (
	methodProgress    = "notifications/progress"
	methodListChanged = "notifications/tools/list_changed"
	methodCancelled   = "notifications/cancelled"
	// of subscriptions/listen, by which the newest protocol tells of changes
	methodAcknowledged = "notifications/subscriptions/acknowledged"
)

// tap stands between a connection and the SDK. It must not be put around a
// Streamable HTTP connection, which the SDK treats by its type; see tripper.
type tap struct {
	mcp.Connection
	flights *flights
}

// Write notes which request is whose.
func (t *tap) Write(ctx context.Context, msg jsonrpc.Message) error {
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		f := flightFrom(ctx)
		if f == nil {
			f = &flight{}
		} else {
			f.note(func(f *flight) { f.sent = true })
		}
		t.flights.sending(req.ID.Raw(), f)
	}
	return t.Connection.Write(ctx, msg)
}

// Read yields the messages that the SDK has to see.
func (t *tap) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		msg, err := t.Connection.Read(ctx)
		if err != nil || t.pass(msg) {
			return msg, err
		}
	}
}

func (t *tap) pass(msg jsonrpc.Message) bool {
	switch msg := msg.(type) {
	case *jsonrpc.Response:
		if f := t.flights.take(msg.ID.Raw()); f != nil && msg.Error == nil {
			f.answered(msg.Result)
		}
	case *jsonrpc.Request:
		return msg.IsCall() || t.notified(msg)
	}
	return true
}

// notified handles progress here and now: a server that sends more of it than
// the caller can take has to wait.
func (t *tap) notified(msg *jsonrpc.Request) bool {
	switch msg.Method {
	case methodProgress:
		if p, ok := parseProgress(msg.Params); ok {
			t.flights.progress(p.Token, p.Progress, p.Total, p.Message)
		}
		return false
	case methodListChanged:
		return t.flights.changing()
	}
	return wanted(msg.Method)
}

// wanted notifications are those that the SDK has a use for here.
func wanted(method string) bool {
	switch method {
	case methodProgress, methodListChanged, methodCancelled, methodAcknowledged:
		return true
	}
	return false
}

type progress struct {
	Token    any     `json:"progressToken"`
	Progress float64 `json:"progress"`
	Total    float64 `json:"total"`
	Message  string  `json:"message"`
}

func parseProgress(params json.RawMessage) (progress, bool) {
	var p progress
	err := json.Unmarshal(params, &p)
	return p, err == nil
}
