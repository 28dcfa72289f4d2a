package rest

import (
	"net/http"
	"reflect"

	"github.com/gin-gonic/gin"

	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

// Route is one line of the route table: what gin serves and what the OpenAPI
// document says of it.
type Route struct {
	Method string
	Path   string // as gin writes it
	// ID is the operation's name in the document.
	ID      string
	Summary string
	Detail  string
	// Open routes want no token: probes have none.
	Open    bool
	Params  []Param
	Body    *Body
	Answers []Answer
	handler func(*gin.Context) error
}

// Where a parameter stands.
const (
	inPath   = "path"
	inQuery  = "query"
	inHeader = "header"
)

// Param is a parameter of a route.
type Param struct {
	In      string
	Name    string
	Detail  string
	Kind    string   // JSON type
	Enum    []string // nil: any
	Repeat  bool     // may be given more than once
	Default any
}

// Body is what a route takes; a nil Type means bytes.
type Body struct {
	Media string
	Type  reflect.Type
}

// Answer is one way a route answers when all went well; a nil Type means bytes.
type Answer struct {
	Status int
	Media  string // "" for no body
	Type   reflect.Type
	Detail string
}

func (r Route) queryNames() []string {
	names := []string{}
	for _, p := range r.Params {
		if p.In == inQuery {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return []string{"none"}
	}
	return names
}

func jsonAnswer[T any](status int, detail string) Answer {
	return Answer{status, "application/json", reflect.TypeFor[T](), detail}
}

func jsonBody[T any]() *Body {
	return &Body{"application/json", reflect.TypeFor[T]()}
}

func query(name, kind, detail string) Param {
	return Param{In: inQuery, Name: name, Kind: kind, Detail: detail}
}

func pathID(what string) Param {
	return Param{In: inPath, Name: "id", Kind: "string", Detail: what + "'s id"}
}

func limitQuery(size int) Param {
	return Param{In: inQuery, Name: "limit", Kind: "integer", Detail: "most entries of a page, up to 1000", Default: size}
}

func streamAnswers(detail string) []Answer {
	frame := reflect.TypeFor[run.Event]()
	return []Answer{
		{http.StatusOK, mediaSSE, frame, detail + ", as server-sent events; `data` is a frame"},
		{http.StatusOK, mediaNDJSON, frame, detail + ", one JSON object a line (with `Accept: application/x-ndjson`)"},
	}
}

// routes is the table.
func (s *Server) routes() []Route {
	var all []Route
	for _, group := range [][]Route{s.runRoutes(), s.artifactRoutes(), s.catalogRoutes(), s.toolRoutes(), s.mcpRoutes(), s.serviceRoutes()} {
		all = append(all, group...)
	}
	return all
}

func (s *Server) runRoutes() []Route {
	return []Route{
		{
			Method: http.MethodPost, Path: "/v1/exec", ID: "exec", Summary: "Run a script", handler: s.exec,
			Detail: "One program in a container of its own. A script that fails is still a 200 with its exitCode and error; " +
				"a run that mcpx could not carry out is a problem that names the run. `options.output` chooses the form of the answer. " +
				"A caller who disconnects ends the run, unless it asked for a task.",
			Body: jsonBody[run.Request](),
			Answers: append([]Answer{
				jsonAnswer[run.Result](http.StatusOK, "structured: the whole result, once the run has ended"),
				{http.StatusOK, "text/plain", nil, "text: the script's stdout as it comes, byte for byte; the trailers Mcpx-Exit-Code and Mcpx-State tell the ending"},
				jsonAnswer[run.Summary](http.StatusAccepted, "a task was asked for; Location is its run"),
			}, streamAnswers("stream: the run's frames as they happen")...),
		},
		{
			Method: http.MethodGet, Path: "/v1/runs", ID: "listRuns", Summary: "List runs, the newest first", handler: s.listRuns,
			Params: []Param{
				{In: inQuery, Name: "state", Kind: "string", Enum: stateNames(), Repeat: true, Detail: "only these states"},
				query("session", "string", "only this session"),
				query("task_handle", "string", "only this task handle"),
				query("label", "string", "only this label"),
				limitQuery(job.DefaultLimit),
				query("after", "string", "`next` of the page before"),
			},
			Answers: []Answer{jsonAnswer[RunPage](http.StatusOK, "a page; `next` is absent on the last one")},
		},
		{
			Method: http.MethodGet, Path: "/v1/runs/:id", ID: "getRun", Summary: "One run, with its result once it has ended",
			handler: s.getRun, Params: []Param{pathID("the run")},
			Answers: []Answer{jsonAnswer[RunDocument](http.StatusOK, "the run")},
		},
		{
			Method: http.MethodGet, Path: "/v1/runs/:id/frames", ID: "followRun", Summary: "A run's frames, from any point on",
			handler: s.frames,
			Params: []Param{
				pathID("the run"),
				{In: inQuery, Name: "after", Kind: "integer", Detail: "seq of the last frame seen", Default: 0},
				{In: inHeader, Name: "Last-Event-ID", Kind: "integer", Detail: "the same, as browsers send it; it wins"},
			},
			Answers: streamAnswers("the frames that follow, as they happen"),
		},
		{
			Method: http.MethodPost, Path: "/v1/runs/:id/cancel", ID: "cancelRun", Summary: "End a run", handler: s.cancelRun,
			Detail:  "Idempotent. The answer acknowledges the request; the run's end frame tells its end.",
			Params:  []Param{pathID("the run")},
			Answers: []Answer{jsonAnswer[CancelDocument](http.StatusOK, "what the request met")},
		},
	}
}

func (s *Server) serviceRoutes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: "/v1/openapi.json", ID: "openapi", Summary: "This document", handler: s.getDocument,
			Answers: []Answer{jsonAnswer[map[string]any](http.StatusOK, "OpenAPI 3.1")},
		},
		{
			Method: http.MethodGet, Path: "/healthz", ID: "health", Summary: "Is the daemon alive", Open: true, handler: s.health,
			Answers: []Answer{jsonAnswer[HealthDocument](http.StatusOK, "it is")},
		},
		{
			Method: http.MethodGet, Path: "/readyz", ID: "ready", Summary: "Could a run be carried out now", Open: true, handler: s.ready,
			Answers: []Answer{jsonAnswer[HealthDocument](http.StatusOK, "it could")},
		},
	}
}

func stateNames() []string {
	var names []string
	for _, s := range allStates() {
		names = append(names, string(s))
	}
	return names
}
