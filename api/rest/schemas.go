package rest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"mcpx/api/problem"
	"mcpx/orchestrator/run"
)

// schemas collects the document's components, one a type.
type schemas struct {
	components map[string]*jsonschema.Schema
}

func newSchemas() *schemas {
	return &schemas{components: map[string]*jsonschema.Schema{}}
}

// request describes a body that we take: what it does not name is refused.
func (s *schemas) request(t reflect.Type) (object, error) {
	return s.component(t, func(*jsonschema.Schema) {})
}

// answer describes a body that we send: readers must be ready for more members.
func (s *schemas) answer(t reflect.Type) (object, error) { return s.component(t, open) }

func open(schema *jsonschema.Schema) {
	if schema.Type == "object" && schema.Properties != nil {
		schema.AdditionalProperties = nil
	}
}

// RequestSchema describes a type that we take, for other surfaces.
func RequestSchema(t reflect.Type) (*jsonschema.Schema, error) {
	return adapted(t, func(*jsonschema.Schema) {})
}

// AnswerSchema describes a type that we send, for other surfaces.
func AnswerSchema(t reflect.Type) (*jsonschema.Schema, error) { return adapted(t, open) }

func adapted(t reflect.Type, adapt func(*jsonschema.Schema)) (*jsonschema.Schema, error) {
	schema, err := schemaOf(t)
	if err != nil {
		return nil, err
	}
	walk(schema, func(one *jsonschema.Schema) {
		notNull(one)
		adapt(one)
	})
	return schema, nil
}

func (s *schemas) component(t reflect.Type, adapt func(*jsonschema.Schema)) (object, error) {
	if t.Kind() == reflect.Map {
		return object{"type": "object"}, nil
	}
	name := componentName(t)
	if s.components[name] == nil {
		schema, err := adapted(t, adapt)
		if err != nil {
			return nil, err
		}
		s.components[name] = schema
	}
	return object{"$ref": "#/components/schemas/" + name}, nil
}

// componentName is the type's name; a problem's is not just "Document".
func componentName(t reflect.Type) string {
	if t == reflect.TypeFor[problem.Document]() {
		return "Problem"
	}
	return t.Name()
}

func schemaOf(t reflect.Type) (*jsonschema.Schema, error) {
	if t == reflect.TypeFor[run.Event]() {
		return frameSchema()
	}
	return jsonschema.ForType(t, schemaOptions())
}

// schemaOptions describes the types whose JSON is not what their Go form says.
func schemaOptions() *jsonschema.ForOptions {
	var states []any
	for _, state := range allStates() {
		states = append(states, string(state))
	}
	return &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {Description: "any JSON value"},
		reflect.TypeFor[[]byte]():          {Type: "string", ContentEncoding: "base64"},
		reflect.TypeFor[run.State]():       {Type: "string", Enum: states},
	}}
}

// frame is one type of frame with the payload that it carries.
type frame struct {
	kind    string
	payload reflect.Type
}

func frames() []frame {
	return []frame{
		{run.EventQueued, reflect.TypeFor[run.QueuedFrame]()},
		{run.EventStart, reflect.TypeFor[run.StartFrame]()},
		{run.EventHook, reflect.TypeFor[run.HookFrame]()},
		{run.EventLog, reflect.TypeFor[run.Log]()},
		{run.EventEmit, reflect.TypeFor[run.Emit]()},
		{run.EventStdout, reflect.TypeFor[run.OutputFrame]()},
		{run.EventStderr, reflect.TypeFor[run.OutputFrame]()},
		{run.EventCall, reflect.TypeFor[run.Call]()},
		{run.EventArtifact, reflect.TypeFor[run.Artifact]()},
		{run.EventSkip, reflect.TypeFor[run.Skip]()},
		{run.EventResult, reflect.TypeFor[run.ResultFrame]()},
		{run.EventError, reflect.TypeFor[run.Error]()},
		{run.EventEnd, reflect.TypeFor[run.End]()},
		{run.EventChunk, reflect.TypeFor[run.ChunkFrame]()},
		{run.EventChunkEnd, reflect.TypeFor[run.ChunkFrame]()},
	}
}

// frameSchema is flat, as a frame is: the payload's members beside the head's.
func frameSchema() (*jsonschema.Schema, error) {
	one := &jsonschema.Schema{Title: "Frame", Description: "one event of a run"}
	for _, f := range frames() {
		schema, err := jsonschema.ForType(f.payload, schemaOptions())
		if err != nil {
			return nil, fmt.Errorf("%s frame: %w", f.kind, err)
		}
		kind := any(f.kind)
		least := 1.0
		schema.Title = f.kind
		schema.Properties["type"] = &jsonschema.Schema{Const: &kind}
		schema.Properties["seq"] = &jsonschema.Schema{Type: "integer", Minimum: &least, Description: "counts from 1 without gaps"}
		schema.Properties["ts"] = &jsonschema.Schema{Type: "string", Format: "date-time"}
		schema.Required = append([]string{"type", "seq", "ts"}, schema.Required...)
		schema.PropertyOrder = nil // log and emit have a ts of their own, which is the head's
		one.OneOf = append(one.OneOf, schema)
	}
	kind, ping := any("ping"), &jsonschema.Schema{Type: "object", Title: "ping", Required: []string{"type"},
		Description: "only in NDJSON: nothing has happened for 15 seconds"}
	ping.Properties = map[string]*jsonschema.Schema{"type": {Const: &kind}}
	one.OneOf = append(one.OneOf, ping)
	return one, nil
}

// notNull: a list is never null in what we send, and need not be in what we take.
func notNull(s *jsonschema.Schema) {
	if slices.Equal(s.Types, []string{"null", "array"}) {
		s.Type, s.Types = "array", nil
	}
}

func walk(s *jsonschema.Schema, visit func(*jsonschema.Schema)) {
	if s == nil {
		return
	}
	visit(s)
	for _, one := range s.Properties {
		walk(one, visit)
	}
	for _, one := range s.OneOf {
		walk(one, visit)
	}
	walk(s.Items, visit)
	walk(s.AdditionalProperties, visit)
}
