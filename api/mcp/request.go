package mcp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/containerd/errdefs"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpx/orchestrator/run"
)

// request is what a tool's handler must know of the request that it answers.
// The SDK detaches the handlers of sessions from their HTTP requests, so that a
// key in a header of ours leads back.
type request struct {
	ctx context.Context // ends when nobody waits for the answer any more
	by  run.Caller
}

// headerKey never comes from outside: ServeMCP overwrites it.
const headerKey = "Mcpx-Request-Key"

type keyContext struct{}

func withKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyContext{}, key)
}

// enter notes a request until done is called.
func (s *Server) enter(r request) (key string, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", nil, errClosed()
	}
	key = rand.Text()
	s.requests[key] = r
	s.work.Add(1)
	return key, func() {
		s.mu.Lock()
		delete(s.requests, key)
		s.mu.Unlock()
		s.work.Done()
	}, nil
}

// begin finds the request that a handler answers. The context that it yields
// ends, with its cause, when the client cancels and when the client is gone.
func (s *Server) begin(ctx context.Context, extra *sdk.RequestExtra) (_ context.Context, by run.Caller, done func(), err error) {
	key, _ := ctx.Value(keyContext{}).(string)
	if key == "" && extra != nil {
		key = extra.Header.Get(headerKey)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, known := s.requests[key]
	if !known {
		return nil, run.Caller{}, nil, &run.Error{Code: run.CodeCancelled, Class: context.Canceled, Message: "the caller went away"}
	}
	s.work.Add(1)
	ended, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stopCall := context.AfterFunc(ctx, func() {
		if r.ctx.Err() == nil {
			cancel(run.ErrCancelled)
		}
	})
	stopRequest := context.AfterFunc(r.ctx, func() { cancel(causeOf(r.ctx)) })
	return ended, r.by, func() {
		stopCall()
		stopRequest()
		cancel(nil)
		s.work.Done()
	}, nil
}

// causeOf is why a request's context ended: one that net/http ended has lost
// its client.
func causeOf(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return run.ErrClientGone
}

// session names the client's session to those who keep things for one: a digest,
// because the id itself lets its bearer in.
func (s *Server) session(of *sdk.ServerSession) string {
	id := of.ID()
	if id == "" {
		return s.config.Session
	}
	sum := sha256.Sum256([]byte(id))
	return "mcp-" + hex.EncodeToString(sum[:8])
}

// onlyAnnounced refuses methods of features that are not announced, which the
// SDK would answer with empty lists.
func onlyAnnounced(c *sdk.ServerCapabilities) sdk.Middleware {
	announced := map[string]bool{
		"prompts/list": c.Prompts != nil, "prompts/get": c.Prompts != nil,
		"completion/complete":   c.Completions != nil,
		"logging/setLevel":      c.Logging != nil,
		"resources/subscribe":   c.Resources != nil && c.Resources.Subscribe,
		"resources/unsubscribe": c.Resources != nil && c.Resources.Subscribe,
	}
	return func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if served, listed := announced[method]; listed && !served {
				return nil, &jsonrpc.Error{Code: codeMethodNotFound, Message: method + " is not served here"}
			}
			return next(ctx, method, req)
		}
	}
}

func errClosed() error {
	return &run.Error{Code: run.CodeShuttingDown, Class: errdefs.ErrUnavailable, Message: "the daemon is going down"}
}

func errTooLarge(message string) error {
	return &run.Error{Code: run.CodeTooLarge, Class: errdefs.ErrOutOfRange, Message: message, Hint: "upload large data with POST /v1/artifacts"}
}

func errInvalid(message string) error {
	return &run.Error{Code: run.CodeInvalidBody, Class: errdefs.ErrInvalidArgument, Message: message}
}
