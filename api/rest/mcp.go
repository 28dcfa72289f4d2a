package rest

import (
	"bytes"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"
)

// mcpRoutes hand MCP's transport on. It is in the table for the sake of the
// gate, and so that the document tells that it is there.
func (s *Server) mcpRoutes() []Route {
	const path = "/mcp"
	message := Answer{http.StatusOK, "application/json", nil, "a JSON-RPC message"}
	stream := Answer{http.StatusOK, mediaSSE, nil, "JSON-RPC messages, as server-sent events"}
	detail := "MCP's Streamable HTTP transport, in every revision up to 2026-07-28; docs/mcp.md lists the tools."
	return []Route{
		{
			Method: http.MethodPost, Path: path, ID: "mcpMessage", Summary: "Send an MCP message", Detail: detail, handler: s.serveMCP,
			Body:    &Body{Media: "application/json"},
			Answers: []Answer{stream, message, {http.StatusAccepted, "", nil, "a notification or response was taken"}},
		},
		{
			Method: http.MethodGet, Path: path, ID: "mcpStream", Summary: "Listen to an MCP session", Detail: detail, handler: s.serveMCP,
			Answers: []Answer{stream},
		},
		{
			Method: http.MethodDelete, Path: path, ID: "mcpEnd", Summary: "End an MCP session", Detail: detail, handler: s.serveMCP,
			Answers: []Answer{{http.StatusNoContent, "", nil, "it has ended"}},
		},
	}
}

// serveMCP reads the body under our own deadlines, because the transport has none.
func (s *Server) serveMCP(c *gin.Context) error {
	ctx := c.Request.Context()
	if c.Request.Method == http.MethodPost {
		body, err := readBody(c)
		if err != nil {
			return err
		}
		c.Request.Body = io.NopCloser(bytes.NewReader(body))
	}
	if listens(c.Request) {
		var done func()
		ctx, done = s.untilDrain(ctx)
		defer done()
	} else if s.isDraining() {
		return errDraining()
	}
	return s.config.MCP.ServeMCP(c.Writer, c.Request.WithContext(ctx), callerOf(c))
}

// listens: a request that waits for what may happen, and would hold up the
// daemon's end.
func listens(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen"
}
