package rest

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/gin-gonic/gin"

	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

// ToolList is the configured MCP servers with their tools.
type ToolList struct {
	Servers []tool.Server `json:"servers"`
}

// HitList is what a search found, the best first.
type HitList struct {
	Hits []tool.Hit `json:"hits"`
}

// CallDocument is what a tool answered: its value, or its error's text.
type CallDocument struct {
	// Value is structured content, JSON that was sent as text, or text.
	Value   json.RawMessage `json:"value,omitempty"`
	IsError bool            `json:"isError,omitempty"`
	Text    string          `json:"text,omitempty"`
	// Note says that the tool's schema changed of late, and how.
	Note string          `json:"note,omitempty"`
	Raw  json.RawMessage `json:"raw"` // as the server sent it
}

// usualHits is how many hits a search yields when nobody says.
const usualHits = 20

func (s *Server) toolRoutes() []Route {
	ns := func(in string) Param {
		return Param{In: in, Name: "ns", Kind: "string", Detail: "a namespace, or the server's name"}
	}
	inRoute := func(name, detail string) Param {
		return Param{In: inPath, Name: name, Kind: "string", Detail: detail}
	}
	return []Route{
		{
			Method: http.MethodGet, Path: "/v1/tools", ID: "listTools", Summary: "List the MCP servers with their tools", handler: s.listTools,
			Detail: "From the catalogue: no server is started.",
			Params: []Param{ns(inQuery)}, Answers: []Answer{jsonAnswer[ToolList](http.StatusOK, "the servers")},
		},
		{
			Method: http.MethodGet, Path: "/v1/tools/search", ID: "searchTools", Summary: "Find tools by words, the best first", handler: s.searchTools,
			Params:  []Param{query("q", "string", "words of the name or description"), limitQuery(usualHits)},
			Answers: []Answer{jsonAnswer[HitList](http.StatusOK, "what was found")},
		},
		{
			Method: http.MethodPost, Path: "/v1/tools/refresh", ID: "refreshTools", Summary: "Ask MCP servers for their tools", handler: s.refreshTools,
			Params:  []Param{{In: inQuery, Name: "server", Kind: "string", Repeat: true, Detail: "only this server"}},
			Answers: []Answer{jsonAnswer[ToolList](http.StatusOK, "the servers as they are now")},
		},
		{
			Method: http.MethodGet, Path: "/v1/types/:ns", ID: "types", Summary: "Declarations of a namespace", handler: s.types,
			Params: []Param{
				ns(inPath), query("lang", "string", "a language that mcpx has a client for; TypeScript if left out"),
				{In: inQuery, Name: "fn", Kind: "string", Repeat: true, Detail: "only this function"},
			},
			Answers: []Answer{{http.StatusOK, "text/plain", nil, "the declarations"}},
		},
		{
			Method: http.MethodPost, Path: "/v1/call/:server/:tool", ID: "callTool", Summary: "Call one tool", handler: s.callTool,
			Detail: "A tool that reports an error is still a 200 with isError. A problem means that there is no result: the call was " +
				"refused, or what became of it is not known. A caller who disconnects cancels the call.",
			Params: []Param{
				inRoute("server", "the server's name, or its namespace"), inRoute("tool", "the tool's name, or its function"),
				query("session", "string", "the session whose instance of the server is called"),
			},
			Body:    jsonBody[map[string]any](),
			Answers: []Answer{jsonAnswer[CallDocument](http.StatusOK, "what the tool answered")},
		},
	}
}

func (s *Server) listTools(c *gin.Context) error {
	servers, err := s.config.Tools.Servers(c.Request.Context(), c.Query("ns"))
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, ToolList{tidy(servers)})
}

// tidy sees to it that no list is null.
func tidy(servers []tool.Server) []tool.Server {
	out := make([]tool.Server, len(servers))
	for i, server := range servers {
		server.Tools = orEmpty(server.Tools)
		out[i] = server
	}
	return out
}

func (s *Server) searchTools(c *gin.Context) error {
	limit, err := limitParam(c)
	if err != nil {
		return err
	}
	if limit == 0 {
		limit = usualHits
	}
	hits, err := s.config.Tools.Search(c.Request.Context(), c.Query("q"), limit)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, HitList{orEmpty(hits)})
}

func (s *Server) refreshTools(c *gin.Context) error {
	ctx := c.Request.Context()
	if err := s.config.Tools.Refresh(ctx, c.QueryArray("server")...); err != nil {
		return err
	}
	servers, err := s.config.Tools.Servers(ctx, "")
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, ToolList{tidy(servers)})
}

func (s *Server) types(c *gin.Context) error {
	text, err := s.config.Tools.Types(c.Request.Context(), c.Param("ns"), c.Query("lang"), c.QueryArray("fn")...)
	if err != nil {
		return err
	}
	h := c.Writer.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	c.Status(http.StatusOK)
	_, err = c.Writer.WriteString(text)
	return err
}

// callTool hands the body on as it is: what it has to be, the tool's schema says.
func (s *Server) callTool(c *gin.Context) error {
	var args json.RawMessage
	if err := decode(c, &args); err != nil {
		return err
	}
	if !strings.HasPrefix(string(args), "{") {
		return &run.Error{Code: run.CodeInvalidBody, Class: errdefs.ErrInvalidArgument, Message: "the arguments of a tool are an object", Hint: "{} for none"}
	}
	if s.isDraining() {
		return errDraining()
	}
	result, err := s.config.Tools.Call(c.Request.Context(), tool.Call{
		Server: c.Param("server"), Tool: c.Param("tool"), Arguments: args,
		Session: c.Query("session"), Principal: callerOf(c).Principal,
	})
	if err != nil {
		return err
	}
	document, err := CallDocumentOf(result)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, document)
}

// CallDocumentOf tells a tool's result.
func CallDocumentOf(result tool.Result) (CallDocument, error) {
	if result.IsError {
		return CallDocument{IsError: true, Text: tool.Text(result.Raw), Note: result.Note, Raw: result.Raw}, nil
	}
	value, err := tool.Unwrap(result.Raw)
	return CallDocument{Value: value, Raw: result.Raw}, err
}
