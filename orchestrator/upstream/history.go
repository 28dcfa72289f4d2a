package upstream

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"mcpx/orchestrator/tool"
)

// Change is one change of a server's tools.
type Change struct {
	At   time.Time `json:"at"`
	Tool string    `json:"tool"`
	// Details say what changed: "added", "removed", or which arguments did.
	Details []string `json:"details"`
}

// maxHistory bounds what is kept of a server's changes.
const maxHistory = 200

// changes compares two lists of tools. What is only worded differently is no
// change to those who call.
func changes(before, after []tool.Tool, at time.Time) []Change {
	old, now := byName(before), byName(after)
	names := maps.Clone(old)
	maps.Copy(names, now)
	var out []Change
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, had := old[name]
		b, has := now[name]
		var details []string
		switch {
		case !had:
			details = []string{"added"}
		case !has:
			details = []string{"removed"}
		default:
			details = differences(a, b)
		}
		if len(details) > 0 {
			out = append(out, Change{At: at, Tool: name, Details: details})
		}
	}
	return out
}

func byName(tools []tool.Tool) map[string]tool.Tool {
	out := make(map[string]tool.Tool, len(tools))
	for _, t := range tools {
		out[t.Name] = t
	}
	return out
}

func differences(a, b tool.Tool) []string {
	details := schemaDifferences(a.InputSchema, b.InputSchema)
	if !sameJSON(a.OutputSchema, b.OutputSchema) {
		details = append(details, "the output schema is another")
	}
	return details
}

// shape is what is compared in words.
type shape struct {
	Properties map[string]any `json:"properties"`
	Required   []string       `json:"required"`
}

func schemaDifferences(before, after json.RawMessage) []string {
	if sameJSON(before, after) {
		return nil
	}
	var a, b shape
	if json.Unmarshal(before, &a) != nil || json.Unmarshal(after, &b) != nil {
		return []string{"the input schema is another"}
	}
	names := maps.Clone(a.Properties)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, b.Properties)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if text := propertyDifference(name, a, b); text != "" {
			out = append(out, text)
		}
	}
	if len(out) == 0 {
		out = []string{"the input schema is another"}
	}
	return out
}

func propertyDifference(name string, a, b shape) string {
	before, had := a.Properties[name]
	after, has := b.Properties[name]
	wanted, wants := slices.Contains(a.Required, name), slices.Contains(b.Required, name)
	switch {
	case !had && wants:
		return name + " is new and required"
	case !had:
		return name + " is new"
	case !has:
		return name + " is gone"
	case typeName(before) != typeName(after):
		return fmt.Sprintf("%s was %s and is %s", name, typeName(before), typeName(after))
	case !wanted && wants:
		return name + " is required now"
	case wanted && !wants:
		return name + " is optional now"
	case !reflect.DeepEqual(before, after):
		return name + " has other rules"
	}
	return ""
}

func typeName(property any) string {
	object, _ := property.(map[string]any)
	switch t := object["type"].(type) {
	case string:
		return t
	case []any:
		words := make([]string, len(t))
		for i, one := range t {
			words[i] = fmt.Sprint(one)
		}
		return strings.Join(words, "|")
	}
	return "of another form"
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return string(a) == string(b)
	}
	return reflect.DeepEqual(x, y)
}

// String is the change in one sentence.
func (c Change) String() string {
	return fmt.Sprintf("%s changed at %s: %s", c.Tool, c.At.UTC().Format(time.RFC3339), strings.Join(c.Details, ", "))
}
