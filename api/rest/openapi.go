package rest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"mcpx/api/problem"
)

// object is a JSON object of the OpenAPI document.
type object = map[string]any

// document is the OpenAPI 3.1 description of the route table.
func (s *Server) document() ([]byte, error) {
	schemas := newSchemas()
	problems, err := schemas.problems()
	if err != nil {
		return nil, err
	}
	paths := object{}
	for _, r := range s.routes() {
		operation, err := operationOf(r, schemas, problems)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.Method, r.Path, err)
		}
		path := openapiPath(r.Path)
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(r.Method)] = operation
	}
	return json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "mcpx", "version": orElse(s.config.Version, "dev"),
			"summary":     "Runs each script in a container of its own",
			"description": "Requests are strict: an unknown field or parameter is refused and named. Errors are application/problem+json.",
		},
		"security": []object{{"bearer": []string{}}},
		"paths":    paths,
		"components": object{
			"schemas": schemas.components,
			"securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer",
				"description": "wanted on TCP; unix sockets need none"}},
		},
	}, "", "  ")
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// openapiPath turns gin's /runs/:id into /runs/{id}.
func openapiPath(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if name, ok := strings.CutPrefix(part, ":"); ok {
			parts[i] = "{" + name + "}"
		}
	}
	return strings.Join(parts, "/")
}

func operationOf(r Route, schemas *schemas, problems object) (object, error) {
	answers, err := answersOf(r, schemas)
	if err != nil {
		return nil, err
	}
	answers["4XX"], answers["5XX"] = problems, problems
	operation := object{"operationId": r.ID, "summary": r.Summary, "responses": answers}
	if r.Detail != "" {
		operation["description"] = r.Detail
	}
	if r.Open {
		operation["security"] = []object{}
	}
	if len(r.Params) > 0 {
		operation["parameters"] = paramsOf(r)
	}
	if r.Body != nil {
		content, err := contentOf(r.Body.Media, r.Body.Type, schemas.request)
		if err != nil {
			return nil, err
		}
		operation["requestBody"] = object{"required": true, "content": content}
	}
	return operation, nil
}

func paramsOf(r Route) []object {
	var all []object
	for _, p := range r.Params {
		schema := object{"type": p.Kind}
		if p.Enum != nil {
			schema["enum"] = p.Enum
		}
		if p.Default != nil {
			schema["default"] = p.Default
		}
		if p.Repeat {
			schema = object{"type": "array", "items": schema}
		}
		param := object{"name": p.Name, "in": p.In, "description": p.Detail, "schema": schema}
		if p.In == inPath {
			param["required"] = true
		}
		all = append(all, param)
	}
	return all
}

// answersOf groups answers of one status: they differ in their media type.
func answersOf(r Route, schemas *schemas) (object, error) {
	answers := object{}
	for _, a := range r.Answers {
		key := strconv.Itoa(a.Status)
		answer, begun := answers[key].(object)
		if !begun {
			answer = object{"description": a.Detail}
			answers[key] = answer
		} else {
			answer["description"] = answer["description"].(string) + "; " + a.Detail
		}
		if a.Media == "" {
			continue
		}
		content, err := contentOf(a.Media, a.Type, schemas.answer)
		if err != nil {
			return nil, err
		}
		if all, ok := answer["content"].(object); ok {
			all[a.Media] = content[a.Media]
		} else {
			answer["content"] = content
		}
	}
	return answers, nil
}

// contentOf describes a body; bytes have no schema (OpenAPI 3.1, 4.8.14.3).
func contentOf(media string, t reflect.Type, ref func(reflect.Type) (object, error)) (object, error) {
	if t == nil {
		return object{media: object{}}, nil
	}
	schema, err := ref(t)
	return object{media: object{"schema": schema}}, err
}

// problems is the answer that every route can give, with all codes.
func (s *schemas) problems() (object, error) {
	ref, err := s.answer(reflect.TypeFor[problem.Document]())
	if err != nil {
		return nil, err
	}
	var codes []*jsonschema.Schema
	for _, c := range problem.Codes() {
		name := any(c.Name)
		codes = append(codes, &jsonschema.Schema{Const: &name, Description: c.Meaning})
	}
	s.components["Problem"].Properties["code"] = &jsonschema.Schema{Type: "string", OneOf: codes}
	return object{
		"description": "refused (4XX) or not possible (5XX)",
		"content":     object{problem.ContentType: object{"schema": ref}},
	}, nil
}
