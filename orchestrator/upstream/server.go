package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

// server is one configured server: what is known of its tools, and its pool.
type server struct {
	config    Server
	namespace string
	manager   *Manager
	selection selection
	redact    redactor
	tail      *tail
	pool      *pool

	mu        sync.Mutex
	record    *record
	err       string        // why the tools are not known, or may be old
	asked     bool          // it was asked since the start
	asking    chan struct{} // closed when the question under way is answered
	relisting chan struct{} // closed when the list that is being read is read
	checks    map[string]*tool.Arguments
}

func (m *Manager) newServer(s Server) (*server, error) {
	chosen, err := newSelection(s)
	if err != nil {
		return nil, &run.Error{Code: run.CodeInvalidOption, Field: "mcpServers." + s.Name, Message: err.Error(), Class: errdefs.ErrInvalidArgument}
	}
	secrets := newRedactor(s)
	one := &server{config: s, manager: m, selection: chosen, redact: secrets, tail: &tail{redact: secrets}, checks: map[string]*tool.Arguments{}}
	if one.record, err = m.catalogue.load(s.Name); err != nil {
		m.config.Log.Warn("catalogue of an MCP server is made anew", "server", s.Name, "error", err)
	}
	if from := origin(s); one.record.Origin != from {
		// Another command: its tools are not known. Names and history stay.
		one.record.Origin, one.record.Fetched, one.record.Tools = from, time.Time{}, nil
	}
	d := &dialer{server: s, lookup: m.config.Lookup, limit: m.config.MaxResponse, tail: one.tail, version: m.config.Version, changed: one.changed}
	one.pool = newPool(m.life, s, d.dial, func(ctx context.Context, i *instance) { one.relist(ctx, i.link) })
	return one, nil
}

func (s *server) unasked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.record.known() && !s.asked
}

// ask asks a server of which nothing is known. Whoever comes while it is being
// asked waits for the same answer, no longer than ctx.
func (s *server) ask(ctx context.Context) {
	s.mu.Lock()
	if s.asking == nil {
		s.asking = make(chan struct{})
		lasting, leave := s.manager.life.outlive(ctx)
		s.manager.life.work.Go(func() {
			defer leave()
			s.answer(lasting)
		})
	}
	asking := s.asking
	s.mu.Unlock()
	select {
	case <-asking:
	case <-ctx.Done():
	}
}

func (s *server) answer(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*s.config.StartTimeout, errNoAnswer) // the start has its own limit
	defer cancel()
	s.refresh(ctx) //nolint:errcheck // it is kept in s.err
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = true
	close(s.asking)
	s.asking = nil
}

// catalogueKey is the holder of instances that are only asked for tools.
const catalogueKey = "catalogue"

// refresh asks for the tools now.
func (s *server) refresh(ctx context.Context) error {
	key := ""
	if s.config.Scope != ScopeGlobal {
		key = catalogueKey
		defer s.pool.endIdle(key)
	}
	before := s.fetched()
	i, err := s.pool.acquire(ctx, key)
	if err != nil {
		s.noteError(err)
		return s.unavailable(err)
	}
	defer s.pool.release(i)
	if !s.fetched().Equal(before) {
		return nil // it was just started, which lists its tools
	}
	if err := s.relist(ctx, i.link); err != nil {
		return s.unavailable(err)
	}
	return nil
}

func (s *server) fetched() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Fetched
}

func (s *server) noteError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = s.redact.text(err.Error())
}

// relist reads the tools from a living server and keeps them.
func (s *server) relist(ctx context.Context, l *link) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.config.StartTimeout, errors.New("it did not list its tools in time"))
	defer cancel()
	tools, err := l.listTools(ctx)
	if err != nil {
		err = fmt.Errorf("list tools: %w", orCause(ctx, err))
		s.noteError(err)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record = s.record.updated(tools, time.Now().UTC())
	s.err, s.asked = "", true
	clear(s.checks)
	if err := s.manager.catalogue.save(s.record); err != nil {
		// The tools are known all the same; the next start has to ask again.
		s.manager.config.Log.Warn("tool catalogue is not kept", "server", s.config.Name, "error", err)
	}
	return nil
}

// changed is told by a server that its tools changed.
func (s *server) changed(ctx context.Context, l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.relisting
	done := make(chan struct{})
	s.relisting = done
	ctx, leave := s.manager.life.outlive(ctx)
	s.manager.life.work.Go(func() {
		defer close(done)
		defer leave()
		if before != nil {
			<-before
		}
		s.relist(ctx, l) //nolint:errcheck // it is kept in s.err
	})
}

// settled waits for a list that is being read.
func (s *server) settled(ctx context.Context) {
	s.mu.Lock()
	reading := s.relisting
	s.mu.Unlock()
	if reading == nil {
		return
	}
	select {
	case <-reading:
	case <-ctx.Done():
	}
}

// listing is the server as it is listed.
func (s *server) listing() tool.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := tool.Server{Name: s.config.Name, Namespace: s.namespace, Description: s.config.Description, Tools: s.offered(), Err: s.err}
	if !s.record.known() && out.Err == "" {
		out.Err = orElse(s.config.Problem, "it was not asked for its tools in time")
	}
	return out
}

// offered are the tools that the configuration does not keep back.
func (s *server) offered() []tool.Tool {
	out := []tool.Tool{}
	for _, t := range s.record.Tools {
		if s.selection.holds(t.Name) {
			out = append(out, t)
		}
	}
	return out
}

// tool looks a tool up. A server that was not asked yet is asked when the
// catalogue does not have the tool: it may have been replaced by a newer one.
func (s *server) tool(ctx context.Context, name string) (tool.Tool, error) {
	t, err := s.lookup(name)
	if err != nil && !errdefs.IsPermissionDenied(err) && s.old() {
		s.ask(ctx)
		t, err = s.lookup(name)
	}
	return t, err
}

// old reports whether all that is known comes from an earlier manager's time,
// or is not known at all.
func (s *server) old() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.asked || !s.record.known()
}

func (s *server) lookup(name string) (tool.Tool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := pickTool(s.record.Tools, name); ok {
		if !s.selection.holds(t.Name) {
			return tool.Tool{}, &run.Error{Code: run.CodeToolDenied, Class: errdefs.ErrPermissionDenied, Field: "tool",
				Message: fmt.Sprintf("the configuration keeps tool %s of MCP server %s back", t.Name, s.config.Name)}
		}
		return t, nil
	}
	if !s.record.known() {
		return tool.Tool{}, &run.Error{Code: run.CodeUpstreamUnavailable, Class: errdefs.ErrUnavailable, Field: "server",
			Message: fmt.Sprintf("the tools of MCP server %s are not known: %s", s.config.Name, orElse(s.err, "it was not asked in time"))}
	}
	return tool.Tool{}, s.unknownTool(name)
}

func pickTool(tools []tool.Tool, name string) (tool.Tool, bool) {
	i := slices.IndexFunc(tools, func(t tool.Tool) bool { return t.Name == name })
	if i < 0 {
		i = slices.IndexFunc(tools, func(t tool.Tool) bool { return t.Function == name })
	}
	if i < 0 {
		return tool.Tool{}, false
	}
	return tools[i], true
}

// unknownTool suggests names, and tells when a tool of that name went.
func (s *server) unknownTool(name string) *run.Error {
	var names []string
	for _, t := range s.offered() {
		names = append(names, t.Name)
	}
	e := &run.Error{Code: run.CodeUnknownTool, Class: errdefs.ErrNotFound, Field: "tool",
		Message: fmt.Sprintf("MCP server %s has no tool %q", s.config.Name, clip(name))}
	switch near := tool.Nearest(name, names); {
	case len(near) > 0:
		e.Hint = "did you mean " + either(near) + "?"
	case len(names) > 0:
		e.Hint = "it has " + list(names)
	default:
		e.Hint = "it has no tools"
	}
	original := name
	for known, function := range s.record.Functions {
		if function == name {
			original = known
		}
	}
	if change, ok := s.record.last(original); ok {
		e.Hint += "; " + change.String()
	}
	return e
}

// history is the newest change of a tool in one sentence, or "".
func (s *server) history(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if change, ok := s.record.last(name); ok && !slices.Equal(change.Details, []string{"added"}) {
		return change.String()
	}
	return ""
}

// arguments yields the check for a tool's arguments; nil when the schema can't
// be checked here.
func (s *server) arguments(t tool.Tool) *tool.Arguments {
	s.mu.Lock()
	defer s.mu.Unlock()
	if check, ok := s.checks[t.Name]; ok {
		return check
	}
	check, err := tool.CompileArguments(t.InputSchema)
	if err != nil {
		s.manager.config.Log.Debug("arguments are left to the MCP server to check", "server", s.config.Name, "tool", t.Name, "error", err)
	}
	s.checks[t.Name] = check
	return check
}
