package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpx/orchestrator/tool"
)

// legacyProtocol is asked for when a server does not get along with the newest
// one: some hang or end at a request that they do not know.
const legacyProtocol = "2025-11-25"

// link is a connection to a server that was initialised.
type link struct {
	session *mcp.ClientSession
	process *process // nil over HTTP
	flights *flights
	close   func() // what is behind the transport
	tokens  atomic.Uint64
	met     atomic.Bool // session is set
}

// dialer makes links to one server.
type dialer struct {
	server  Server
	lookup  func(string) (string, bool)
	limit   int
	tail    *tail
	version string
	changed func(context.Context, *link) // the server says that its tools changed
}

// dial starts the server, within ctx, which is the start timeout's. A server
// that fails with the newest protocol is tried again with the last one that
// begins by initialize, for which half of the time is kept.
func (d *dialer) dial(ctx context.Context) (*link, error) {
	if d.server.Problem != "" {
		return nil, errors.New(d.server.Problem)
	}
	half, cancel := context.WithTimeoutCause(ctx, d.server.StartTimeout/2, errNoAnswer)
	defer cancel()
	l, err := d.attempt(half, "")
	if err == nil || ctx.Err() != nil {
		return l, orCause(ctx, err)
	}
	if _, never := errors.AsType[*startError](err); never {
		return nil, err
	}
	l, again := d.attempt(ctx, legacyProtocol)
	if again == nil {
		return l, nil
	}
	return nil, orCause(ctx, again)
}

var errNoAnswer = errors.New("it did not answer initialize in time")

// startError is one that a second attempt would meet, too.
type startError struct{ err error }

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// orCause prefers the reason why ctx ended to the consequences.
func orCause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (d *dialer) attempt(ctx context.Context, protocol string) (*link, error) {
	l := &link{flights: newFlights(), close: func() {}}
	transport, err := d.transport(l)
	if err != nil {
		return nil, &startError{err}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "mcpx", Version: d.version}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		ToolListChangedHandler: func(ctx context.Context, _ *mcp.ToolListChangedRequest) {
			l.flights.changed()
			if l.met.Load() { // else the list is asked for in a moment anyway
				d.changed(ctx, l)
			}
		},
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			l.flights.progress(req.Params.ProgressToken, req.Params.Progress, req.Params.Total, req.Params.Message)
		},
	})
	l.session, err = client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: protocol})
	if err != nil {
		err = d.explain(l, orCause(ctx, err))
		l.abort()
		return nil, err
	}
	l.met.Store(true)
	return l, nil
}

func (d *dialer) transport(l *link) (mcp.Transport, error) {
	if d.server.Transport == Stdio {
		p, err := startProcess(d.server, d.lookup, d.tail)
		if err != nil {
			return nil, err
		}
		l.process, l.close = p, p.end
		return stdio{p, l.flights, d.tail, d.limit}, nil
	}
	client, done, err := newHTTPClient(d.server, d.limit)
	if err != nil {
		return nil, err
	}
	l.close = done
	if d.server.Transport == SSE {
		return tapped{&mcp.SSEClientTransport{Endpoint: d.server.URL, HTTPClient: client, MaxEventSize: d.limit}, l.flights}, nil
	}
	return &mcp.StreamableClientTransport{Endpoint: d.server.URL, HTTPClient: client, MaxEventSize: d.limit}, nil
}

// tapped puts a tap on what another transport connects.
type tapped struct {
	mcp.Transport
	flights *flights
}

// Connect implements mcp.Transport. The stream that answers come on must last
// longer than the start whose context this is.
func (t tapped) Connect(ctx context.Context) (mcp.Connection, error) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	connection, err := t.Transport.Connect(lasting)
	if err != nil {
		cancel()
		return nil, err
	}
	return &ending{&tap{connection, t.flights}, cancel}, nil
}

// ending frees what belongs to a connection when it is closed.
type ending struct {
	mcp.Connection
	free func()
}

// Close implements mcp.Connection.
func (e *ending) Close() error {
	defer e.free()
	return e.Connection.Close()
}

// reapTime is how long the end of a process is awaited to tell its status.
const reapTime = time.Second

// explain adds what the process has to say to an error of its connection.
func (d *dialer) explain(l *link, err error) error {
	if l.process == nil || errors.Is(err, errNoAnswer) || errors.Is(err, errClosed) {
		return err
	}
	if !l.process.over(reapTime) {
		return err
	}
	if said := d.tail.last(); said != "" {
		return fmt.Errorf("the process ended (%s): %s", l.process.status(), said)
	}
	return fmt.Errorf("the process ended (%s)", l.process.status())
}

// abort is for a server that was never met: there is nothing to take leave of.
func (l *link) abort() {
	if l.process != nil {
		l.process.kill()
	}
	l.close()
}

// errGone ends the calls of a link that is closed.
var errGone = errors.New("the connection to the server was closed")

// end breaks calls under way off, and closes the session and all behind it.
func (l *link) end() {
	l.flights.close()
	if l.process != nil {
		// First, for the SDK waits for writes that a server may never read.
		l.close()
	}
	l.session.Close() //nolint:errcheck // it is gone either way
	l.close()
}

// gone is closed when the process has ended for a while: a process that left
// its group may hold the pipe open, and nothing will come from it.
func (l *link) gone() <-chan struct{} {
	if l.process == nil {
		return nil
	}
	return l.process.silent
}

func (l *link) pid() int {
	if l.process == nil {
		return 0
	}
	return l.process.cmd.Process.Pid
}

// call sends a request by send, with a flight in its context.
func (l *link) fly(ctx context.Context, progress func(done, total float64, message string), send func(ctx context.Context, token string) error) (flightState, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &flight{token: "mcpx-" + strconv.FormatUint(l.tokens.Add(1), 10), progress: progress, cancel: cancel}
	l.flights.start(f)
	defer l.flights.end(f)
	err := send(withFlight(ctx, f), f.token)
	if err != nil && context.Cause(ctx) == errGone {
		err = errGone
	}
	return f.land(), err
}

// callTool calls a tool.
func (l *link) callTool(ctx context.Context, name string, arguments json.RawMessage, progress func(done, total float64, message string)) (flightState, error) {
	return l.fly(ctx, progress, func(ctx context.Context, token string) error {
		params := &mcp.CallToolParams{Name: name, Arguments: arguments}
		if progress != nil {
			params.SetProgressToken(token)
		}
		_, err := l.session.CallTool(ctx, params)
		return err
	})
}

// Bounds of a server's list of tools.
const (
	maxPages = 1000
	maxTools = 10_000
)

// listTools asks for all tools, as the server wrote them.
func (l *link) listTools(ctx context.Context) ([]tool.Tool, error) {
	var all []tool.Tool
	cursor := ""
	for range maxPages {
		var typed *mcp.ListToolsResult
		state, err := l.fly(ctx, nil, func(ctx context.Context, _ string) error {
			var err error
			typed, err = l.session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
			return err
		})
		if err != nil {
			return nil, err
		}
		raw := state.raw
		if raw == nil { // the SDK had it in its cache
			if raw, err = json.Marshal(typed); err != nil {
				return nil, err
			}
		}
		tools, err := parseTools(raw)
		if err != nil {
			return nil, err
		}
		all = append(all, tools...)
		if len(all) > maxTools {
			return nil, fmt.Errorf("it lists more than %d tools", maxTools)
		}
		if typed.NextCursor == "" || typed.NextCursor == cursor {
			return all, nil
		}
		cursor = typed.NextCursor
	}
	return nil, fmt.Errorf("its list of tools has more than %d pages", maxPages)
}

func parseTools(raw json.RawMessage) ([]tool.Tool, error) {
	var page struct {
		Tools []struct {
			Name         string          `json:"name"`
			Title        string          `json:"title"`
			Description  string          `json:"description"`
			InputSchema  json.RawMessage `json:"inputSchema"`
			OutputSchema json.RawMessage `json:"outputSchema"`
			Annotations  struct {
				Title       string `json:"title"`
				ReadOnly    *bool  `json:"readOnlyHint"`
				Destructive *bool  `json:"destructiveHint"`
			} `json:"annotations"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(raw, &page); err != nil {
		return nil, fmt.Errorf("read its list of tools: %w", err)
	}
	tools := make([]tool.Tool, 0, len(page.Tools))
	for _, t := range page.Tools {
		tools = append(tools, tool.Tool{Name: t.Name, Title: orElse(t.Title, t.Annotations.Title), Description: t.Description,
			InputSchema: t.InputSchema, OutputSchema: t.OutputSchema, ReadOnly: t.Annotations.ReadOnly, Destructive: t.Annotations.Destructive})
	}
	return tools, nil
}
