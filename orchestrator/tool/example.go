package tool

import (
	"encoding/json"
	"slices"
	"strings"
)

// Example makes the least arguments that the schema takes, for the hint of an
// error. It is nil when they can't be found by simple means.
func (a *Arguments) Example() json.RawMessage {
	e := exampler{root: a.doc}
	text, err := json.Marshal(e.value(a.doc, 0))
	if err != nil || a.Check(text) != nil {
		return nil
	}
	return text
}

type exampler struct{ root any }

// maxDepth ends schemas that contain themselves.
const maxDepth = 12

func (e exampler) value(schema any, depth int) any {
	s, ok := schema.(map[string]any)
	if !ok || depth > maxDepth {
		return map[string]any{}
	}
	if ref, ok := s["$ref"].(string); ok {
		return e.value(e.resolve(ref), depth+1)
	}
	for _, key := range []string{"const", "default"} {
		if v, ok := s[key]; ok {
			return v
		}
	}
	for _, key := range []string{"examples", "enum"} {
		if list, ok := s[key].([]any); ok && len(list) > 0 {
			return list[0]
		}
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		if list, ok := s[key].([]any); ok && len(list) > 0 && s["properties"] == nil {
			return e.value(list[0], depth+1)
		}
	}
	return e.ofType(s, depth)
}

func (e exampler) ofType(s map[string]any, depth int) any {
	switch firstType(s) {
	case "string":
		return text(s)
	case "number", "integer":
		for _, key := range []string{"minimum", "maximum"} {
			if n, ok := s[key].(json.Number); ok {
				return n
			}
		}
		return 1
	case "boolean":
		return true
	case "null":
		return nil
	case "array":
		least, _ := s["minItems"].(json.Number)
		n, _ := least.Int64() //nolint:errcheck // not a number is 0, and Check has the last word
		list := []any{}
		for range min(n, maxDepth) {
			list = append(list, e.value(s["items"], depth+1))
		}
		return list
	}
	return e.object(s, depth)
}

func (e exampler) object(s map[string]any, depth int) any {
	out := map[string]any{}
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, r := range required {
		if name, ok := r.(string); ok {
			out[name] = e.value(properties[name], depth+1)
		}
	}
	return out
}

func firstType(s map[string]any) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		i := slices.IndexFunc(t, func(v any) bool { return v != "null" })
		if i >= 0 {
			name, _ := t[i].(string)
			return name
		}
		return "null"
	}
	return "object"
}

func text(s map[string]any) string {
	switch s["format"] {
	case "uri", "url":
		return "https://example.com/"
	case "date-time":
		return "2026-01-31T12:00:00Z"
	case "date":
		return "2026-01-31"
	case "email":
		return "name@example.com"
	}
	least, _ := s["minLength"].(json.Number)
	n, _ := least.Int64() //nolint:errcheck // not a number is 0, and Check has the last word
	out := "text"
	if n > int64(len(out)) && n < 1000 {
		out += strings.Repeat("x", int(n)-len(out))
	}
	return out
}

// resolve follows a reference inside the schema.
func (e exampler) resolve(ref string) any {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	at := e.root
	for _, step := range strings.Split(strings.Trim(path, "/"), "/") {
		if step == "" {
			continue
		}
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		object, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = object[step]
	}
	return at
}
