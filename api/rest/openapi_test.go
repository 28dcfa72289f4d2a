package rest_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"mcpx/api/problem"
	"mcpx/artifacts"
	"mcpx/orchestrator/run"
)

// openapi is what these tests look at in the document.
type openapi struct {
	OpenAPI    string
	Info       struct{ Title, Version string }
	Security   []map[string][]string
	Paths      map[string]map[string]operation
	Components struct {
		Schemas         map[string]*jsonschema.Schema
		SecuritySchemes map[string]map[string]string
	}
}

type operation struct {
	OperationID string
	Summary     string
	Security    *[]map[string][]string
	Parameters  []struct {
		Name, In, Description string
		Required              bool
		Schema                *jsonschema.Schema
	}
	RequestBody *struct{ Content map[string]media }
	Responses   map[string]struct {
		Description string
		Content     map[string]media
	}
}

type media struct{ Schema *jsonschema.Schema }

func (d *daemon) openapi() openapi {
	d.t.Helper()
	got := d.do(http.MethodGet, "/v1/openapi.json", "")
	require.Equal(d.t, http.StatusOK, got.status)
	require.Equal(d.t, "application/json", got.header.Get("Content-Type"))
	var doc openapi
	require.NoError(d.t, json.Unmarshal([]byte(got.body), &doc))
	return doc
}

func TestDocumentDescribesExactlyTheRegisteredRoutes(t *testing.T) {
	d := start(t, newJobs())
	served, described := []string{}, []string{}
	for _, r := range d.server.Engine().Routes() {
		served = append(served, r.Method+" "+regexp.MustCompile(`:(\w+)`).ReplaceAllString(r.Path, "{$1}"))
	}
	for path, operations := range d.openapi().Paths {
		for method := range operations {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	require.ElementsMatch(t, served, described)
}

func TestDocumentIsWhole(t *testing.T) {
	doc := start(t, newJobs()).openapi()
	require.Equal(t, "3.1.0", doc.OpenAPI)
	require.NotEmpty(t, doc.Info.Title)
	require.NotEmpty(t, doc.Info.Version)
	require.Equal(t, "bearer", doc.Components.SecuritySchemes["bearer"]["scheme"])
	require.Contains(t, doc.Security[0], "bearer")
	ids := map[string]bool{}
	for path, operations := range doc.Paths {
		for method, op := range operations {
			name := method + " " + path
			require.NotEmpty(t, op.Summary, name)
			require.NotEmpty(t, op.OperationID, name)
			require.False(t, ids[op.OperationID], "%s: id is taken", name)
			ids[op.OperationID] = true
			require.Contains(t, op.Responses["4XX"].Content, problem.ContentType, name)
			require.Contains(t, op.Responses["5XX"].Content, problem.ContentType, name)
			inPath := []string{}
			for _, p := range op.Parameters {
				require.NotEmpty(t, p.Description, name)
				if p.In == "path" {
					require.True(t, p.Required)
					inPath = append(inPath, "{"+p.Name+"}")
				}
			}
			require.ElementsMatch(t, regexp.MustCompile(`\{\w+\}`).FindAllString(path, -1), inPath, name)
			for status, answer := range op.Responses {
				require.NotEmpty(t, answer.Description, name)
				for _, m := range answer.Content {
					doc.resolve(t, m.Schema, name+" "+status)
				}
			}
			if op.RequestBody != nil {
				for _, m := range op.RequestBody.Content {
					doc.resolve(t, m.Schema, name)
				}
			}
		}
	}
	require.Empty(t, *doc.Paths["/healthz"]["get"].Security, "probes have no token")
	require.Contains(t, doc.Paths["/v1/exec"]["post"].Responses["200"].Content, "text/event-stream")
	require.Contains(t, doc.Paths["/v1/exec"]["post"].Responses["200"].Content, "application/x-ndjson")
}

const refPrefix = "#/components/schemas/"

// resolve makes a schema of the document usable; nil for bytes.
func (doc openapi) resolve(t *testing.T, schema *jsonschema.Schema, where string) *jsonschema.Resolved {
	t.Helper()
	if schema == nil {
		return nil
	}
	if schema.Ref != "" {
		name, ok := strings.CutPrefix(schema.Ref, refPrefix)
		require.True(t, ok, schema.Ref)
		require.Contains(t, doc.Components.Schemas, name, where)
		schema = doc.Components.Schemas[name]
	}
	resolved, err := schema.CloneSchemas().Resolve(nil)
	require.NoError(t, err, where)
	return resolved
}

func TestProblemCodesAreListed(t *testing.T) {
	doc := start(t, newJobs()).openapi()
	listed := map[string]string{}
	for _, one := range doc.Components.Schemas["Problem"].Properties["code"].OneOf {
		listed[(*one.Const).(string)] = one.Description
	}
	for _, c := range problem.Codes() {
		require.Equal(t, c.Meaning, listed[c.Name])
	}
	require.Len(t, listed, len(problem.Codes()))
}

// The constants of package run are read from its source, so that a new frame
// can't be forgotten.
func TestEveryFrameIsDescribed(t *testing.T) {
	doc := start(t, newJobs()).openapi()
	described := map[string]bool{}
	for _, one := range doc.Components.Schemas["Event"].OneOf {
		described[(*one.Properties["type"].Const).(string)] = true
	}
	file, err := parser.ParseFile(gotoken.NewFileSet(), "../../orchestrator/run/event.go", nil, 0)
	require.NoError(t, err)
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && strings.HasPrefix(spec.Names[0].Name, "Event") {
			name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			require.True(t, described[name], name)
			found++
		}
		return true
	})
	require.Greater(t, found, 10)
	require.True(t, described["ping"])
}

// What the handlers answer is what the document says, route by route.
func TestAnswersFitTheirSchemas(t *testing.T) {
	d := start(t, newJobs(), withStore(t, artifacts.Options{}))
	doc := d.openapi()
	for _, c := range []struct {
		method, path, route, body string
		header                    []string
		status                    int
	}{
		{http.MethodPost, "/v1/exec", "", `{"source":"x"}`, nil, 200},
		{http.MethodPost, "/v1/exec", "", `{"source":"x","options":{"task":{"ttl":1},"label":"l"}}`, nil, 202},
		{http.MethodPost, "/v1/exec", "", `{"source":"x","options":{"output":"stream"}}`, nil, 200},
		{http.MethodPost, "/v1/exec", "", `{"source":"x","options":{"output":"stream"}}`, []string{"Accept", "application/x-ndjson"}, 200},
		{http.MethodPost, "/v1/exec", "", `{"sauce":"x"}`, nil, 400},
		{http.MethodGet, "/v1/runs", "", "", nil, 200},
		{http.MethodGet, "/v1/runs?limit=x", "/v1/runs", "", nil, 400},
		{http.MethodGet, "/v1/runs/run-1", "/v1/runs/{id}", "", nil, 200},
		{http.MethodGet, "/v1/runs/nope", "/v1/runs/{id}", "", nil, 404},
		{http.MethodGet, "/v1/runs/run-1/frames", "/v1/runs/{id}/frames", "", nil, 200},
		{http.MethodPost, "/v1/runs/run-1/cancel", "/v1/runs/{id}/cancel", "", nil, 200},
		{http.MethodPost, "/v1/artifacts", "", "bytes", nil, 201},
		{http.MethodGet, "/v1/artifacts", "", "", nil, 200},
		{http.MethodGet, "/v1/artifacts/nope", "/v1/artifacts/{id}", "", nil, 404},
		{http.MethodGet, "/v1/images", "", "", nil, 200},
		{http.MethodGet, "/v1/policies", "", "", nil, 200},
		{http.MethodPost, "/v1/policies/explain", "", `{"source":"#!/bin/bash\n","options":{"env":{"LD_PRELOAD":"x"}}}`, nil, 200},
		{http.MethodPost, "/v1/policies/explain", "", `{"source":"#!/bin/bash\n","options":{"permissions":"none-known"}}`, nil, 200},
		{http.MethodGet, "/v1/tools", "", "", nil, 200},
		{http.MethodGet, "/v1/tools?ns=nope", "/v1/tools", "", nil, 404},
		{http.MethodGet, "/v1/tools/search?q=read", "/v1/tools/search", "", nil, 200},
		{http.MethodPost, "/v1/tools/refresh", "", "", nil, 200},
		{http.MethodPost, "/v1/call/my_files/read_file", "/v1/call/{server}/{tool}", "{}", nil, 200},
		{http.MethodPost, "/v1/call/my_files/write", "/v1/call/{server}/{tool}", "{}", nil, 200},
		{http.MethodPost, "/v1/call/my_files/nope", "/v1/call/{server}/{tool}", "{}", nil, 502},
		{http.MethodGet, "/v1/openapi.json", "", "", nil, 200},
		{http.MethodGet, "/healthz", "", "", nil, 200},
		{http.MethodGet, "/readyz", "", "", nil, 200},
	} {
		t.Run(c.method+c.path+strconv.Itoa(c.status), func(t *testing.T) {
			if c.route == "" {
				c.route = c.path
			}
			if c.body != "" {
				c.header = append(c.header, "Content-Type", "application/json")
			}
			got := d.do(c.method, c.path, c.body, c.header...)
			require.Equal(t, c.status, got.status, got.body)
			d.jobs.running.Wait()
			doc.requireDescribed(t, c.method, c.route, got)
		})
	}
}

func (doc openapi) requireDescribed(t *testing.T, method, route string, got answer) {
	t.Helper()
	answers := doc.Paths[route][strings.ToLower(method)].Responses
	described, ok := answers[strconv.Itoa(got.status)]
	if !ok {
		described, ok = answers[strconv.Itoa(got.status/100)+"XX"]
	}
	require.True(t, ok, "status %d is not described", got.status)
	kind := got.header.Get("Content-Type")
	require.Contains(t, described.Content, kind)
	schema := doc.resolve(t, described.Content[kind].Schema, route)
	for _, document := range documentsOf(t, kind, got.body) {
		require.NoError(t, schema.Validate(document), "%v", document)
	}
}

// documentsOf yields each JSON value of a body.
func documentsOf(t *testing.T, kind, body string) (all []any) {
	t.Helper()
	if kind == "text/event-stream" {
		var data bytes.Buffer
		for line := range strings.Lines(body) {
			if rest, ok := strings.CutPrefix(line, "data: "); ok {
				data.WriteString(rest)
			}
		}
		body = data.String()
	}
	values := json.NewDecoder(strings.NewReader(body))
	for {
		var v any
		err := values.Decode(&v)
		if err == io.EOF {
			require.NotEmpty(t, all)
			return all
		}
		require.NoError(t, err)
		all = append(all, v)
	}
}

// Whatever a run can yield fits, not only what the fake here says.
func TestFullFramesAndResultsFitTheirSchemas(t *testing.T) {
	doc := start(t, newJobs()).openapi()
	three, yes, ms := 3, true, 1.5
	payloads := map[string]any{
		run.EventQueued: &run.QueuedFrame{Position: 1},
		run.EventStart:  &run.StartFrame{RunID: "r"}, run.EventHook: &run.HookFrame{Phase: "before", Value: json.RawMessage(`{"a":1}`)},
		run.EventLog: &run.Log{Level: "warn", Message: "m", Code: "c"}, run.EventEmit: &run.Emit{Value: json.RawMessage(`[1]`)},
		run.EventStdout: &run.OutputFrame{Text: "t"}, run.EventStderr: &run.OutputFrame{Data: []byte{0xff}},
		run.EventCall:     &run.Call{Server: "s", Tool: "t", DestructiveHint: &yes},
		run.EventArtifact: &run.Artifact{ID: "a"}, run.EventSkip: &run.Skip{Name: "n", Reason: "r"},
		run.EventResult: &run.ResultFrame{Value: json.RawMessage(`null`)},
		run.EventError:  &run.Error{Code: "c", Message: "m", Searched: []string{"a"}},
		run.EventEnd:    &run.End{RunID: "r", State: run.Exited, ExitCode: &three, Timings: run.Timings{Queued: &ms}},
		run.EventChunk:  &run.ChunkFrame{ID: "a", Data: []byte{1}}, run.EventChunkEnd: &run.ChunkFrame{ID: "a"},
	}
	var fold run.Fold
	frames := doc.resolve(t, &jsonschema.Schema{Ref: refPrefix + "Event"}, "frames")
	seq := int64(0)
	for kind, payload := range payloads {
		seq++
		e := run.Event{Type: kind, Seq: seq, TS: noon, Payload: payload}
		fold.Add(e)
		require.NoError(t, frames.Validate(asJSON(t, e)), kind)
	}
	results := doc.resolve(t, &jsonschema.Schema{Ref: refPrefix + "Result"}, "result")
	require.NoError(t, results.Validate(asJSON(t, fold.Result())))
	var bare run.Fold
	bare.Add(run.Event{Payload: &run.End{State: run.Lost}})
	require.NoError(t, results.Validate(asJSON(t, bare.Result())))
	require.Error(t, frames.Validate(map[string]any{"type": "stdout", "seq": 0, "ts": "x"}))
	require.Error(t, frames.Validate(map[string]any{"type": "nope", "seq": 1, "ts": "x"}))
}

func asJSON(t *testing.T, v any) (out any) {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &out))
	return out
}

func TestRequestSchemaIsAsStrictAsTheHandler(t *testing.T) {
	d := start(t, newJobs())
	schema := d.openapi().resolve(t, &jsonschema.Schema{Ref: refPrefix + "Request"}, "request")
	for body, ok := range map[string]bool{
		`{"source":"x"}`: true,
		`{"source":"x","options":{"env":{"A":"1"},"args":["a"],"artifacts":{"maxBytes":1},"placeholders":{"a":[1]},"captureConsole":false}}`: true,
		`{"sauce":"x"}`: false, `{"source":1}`: false, `{"source":"x","options":{"x":1}}`: false,
		`{"source":"x","options":{"artifacts":{"x":1}}}`: false, `{"source":"x","options":{"args":"a"}}`: false,
	} {
		var v any
		require.NoError(t, json.Unmarshal([]byte(body), &v))
		require.Equal(t, ok, schema.Validate(v) == nil, body)
		require.Equal(t, ok, d.exec(body).status == http.StatusOK, body)
	}
}
