package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpx/orchestrator/run"
)

// maxBody is the largest message: a script with its siblings and its stdin.
const maxBody = 32 << 20

// sessionTimeout ends sessions whose client went without a word.
const sessionTimeout = time.Hour

// sessionless is the first revision of the protocol without sessions; each
// request carries what it needs. The SDK wants a handler of its own for it.
const sessionless = "2026-07-28"

// surface is what one principal's requests go to, so that nobody reaches a
// session of somebody else.
type surface struct {
	server             *sdk.Server
	sessions, requests *sdk.StreamableHTTPHandler
}

func (s *Server) surfaceOf(principal string) (*surface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed()
	}
	one := s.surfaces[principal]
	if one == nil {
		one = newSurface(s.newSDK())
		s.surfaces[principal] = one
	}
	return one, nil
}

func newSurface(server *sdk.Server) *surface {
	handler := func(stateless bool) *sdk.StreamableHTTPHandler {
		return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
			Stateless:                    stateless,
			SessionTimeout:               sessionTimeout,
			MaxRequestBodyBytes:          maxBody,
			PropagateRequestCancellation: true,
			// Hosts and origins are package auth's to judge: it knows those configured.
			DisableLocalhostProtection: true,
		})
	}
	return &surface{server: server, sessions: handler(false), requests: handler(true)}
}

func (s *surface) close() {
	for session := range s.server.Sessions() {
		session.Close() //nolint:errcheck // it ends with us in any case
	}
}

// ServeMCP answers one request of the Streamable HTTP transport. Who by is has
// been checked, and that the request is none that a web page made.
func (s *Server) ServeMCP(w http.ResponseWriter, r *http.Request, by run.Caller) error {
	one, err := s.surfaceOf(by.Principal)
	if err != nil {
		return err
	}
	message, err := messageOf(w, r)
	if err != nil {
		return err
	}
	if message.batch {
		refuse(w, http.StatusBadRequest, codeInvalidRequest, "batches are not taken: send each message in a request of its own")
		return nil
	}
	key, done, err := s.enter(request{ctx: r.Context(), by: by})
	if err != nil {
		return err
	}
	defer done()
	r = r.Clone(r.Context())
	r.Header.Set(headerKey, key)
	if message.sessionless(r.Header.Get("Mcp-Protocol-Version")) {
		one.requests.ServeHTTP(w, r)
	} else {
		one.sessions.ServeHTTP(w, r)
	}
	return nil
}

// message is what routing needs to know of a request's body.
type message struct {
	batch  bool
	Method string `json:"method"`
	Params struct {
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	} `json:"params"`
}

// messageOf reads the body, and leaves it to be read again.
func messageOf(w http.ResponseWriter, r *http.Request) (message, error) {
	var m message
	if r.Method != http.MethodPost || r.Body == nil {
		return m, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return m, errTooLarge(fmt.Sprintf("a message has at most %d bytes", maxBody))
	}
	if err != nil {
		return m, errInvalid("the body did not come whole: " + err.Error())
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	m.batch = bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("["))
	if json.Unmarshal(body, &m) != nil {
		m.Method = "" // malformed: whoever gets it says so
	}
	return m, nil
}

func (m message) sessionless(version string) bool {
	return version >= sessionless || m.Params.Meta.Version >= sessionless || m.Method == "server/discover"
}

// JSON-RPC codes.
const (
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
)

// refuse answers a message that has no id, or none that is worth reading.
func refuse(w http.ResponseWriter, status, code int, text string) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": text}})
	if err != nil { // a string and a number: cannot be
		http.Error(w, text, status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) //nolint:errcheck // the caller is gone, nobody to tell
}
