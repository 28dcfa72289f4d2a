package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Arguments checks the arguments of one tool.
type Arguments struct {
	schema *jsonschema.Schema
	doc    any
}

// schemaURL names the schema to its compiler.
const schemaURL = "mcpx:///arguments"

// refuse keeps a server's schema from naming files or addresses to be read.
type refuse struct{}

// Load implements jsonschema.URLLoader.
func (refuse) Load(url string) (any, error) {
	return nil, fmt.Errorf("a schema may not refer to %s", url)
}

// CompileArguments reads a tool's input schema. A tool without one takes any
// object. It fails for a schema that can't be checked here, as one with a
// regular expression that Go does not know; then the server alone checks.
func CompileArguments(inputSchema json.RawMessage) (*Arguments, error) {
	if len(bytes.TrimSpace(inputSchema)) == 0 {
		inputSchema = json.RawMessage(`{"type":"object"}`)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(inputSchema))
	if err != nil {
		return nil, fmt.Errorf("read input schema: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(refuse{})
	if err := compiler.AddResource(schemaURL, doc); err != nil {
		return nil, fmt.Errorf("read input schema: %w", err)
	}
	schema, err := compiler.Compile(schemaURL)
	if err != nil {
		return nil, fmt.Errorf("compile input schema: %w", err)
	}
	return &Arguments{schema, doc}, nil
}

// Mismatch is what is wrong with arguments.
type Mismatch struct {
	Field   string // path of the first value at fault, as "arguments.filter.from"
	Message string // what was wanted and what was there; never the value itself
}

// Error makes Mismatch an error.
func (m *Mismatch) Error() string { return m.Message }

// maxMistakes bounds how many are told at once.
const maxMistakes = 3

// Check compares arguments with the schema. The error is a *Mismatch.
func (a *Arguments) Check(arguments json.RawMessage) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(arguments))
	if err != nil {
		return &Mismatch{Field: "arguments", Message: "arguments are not JSON: " + err.Error()}
	}
	if _, ok := value.(map[string]any); !ok {
		return &Mismatch{Field: "arguments", Message: "arguments: wanted an object, got " + article(typeOf(value))}
	}
	err = a.schema.Validate(value)
	wrong, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err
	}
	mistakes := leaves(wrong)
	if len(mistakes) == 0 {
		return nil // formats only, on which servers are seldom as strict
	}
	m := &Mismatch{Field: mistakes[0].Field}
	var texts []string
	for _, mistake := range mistakes[:min(len(mistakes), maxMistakes)] {
		texts = append(texts, mistake.Message)
	}
	if more := len(mistakes) - maxMistakes; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	m.Message = strings.Join(texts, "; ")
	return m
}

// leaves finds the mistakes themselves, in the schema's order. For a choice of
// forms the choice is the mistake: which form was meant can't be known.
func leaves(e *jsonschema.ValidationError) []Mismatch {
	field := fieldPath(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.Format:
		return nil
	case *kind.AnyOf, *kind.OneOf:
		return choice(e, field)
	case *kind.Required:
		return missing(field, k.Missing)
	case *kind.AdditionalProperties:
		return extra(field, k.Properties)
	case *kind.Type:
		return []Mismatch{{field, field + ": wanted " + orList(k.Want) + ", got " + article(k.Got)}}
	case *kind.Enum:
		return []Mismatch{{field, field + ": wanted one of " + values(k.Want)}}
	case *kind.Const:
		return []Mismatch{{field, field + ": wanted " + values([]any{k.Want})}}
	}
	if len(e.Causes) == 0 {
		return []Mismatch{{field, field + ": " + described(e.ErrorKind)}}
	}
	var out []Mismatch
	for _, cause := range e.Causes {
		out = append(out, leaves(cause)...)
	}
	return out
}

func choice(e *jsonschema.ValidationError, field string) []Mismatch {
	types := true
	var wanted []string
	for _, cause := range e.Causes {
		found := leaves(cause)
		if len(found) == 0 {
			return nil // one of the forms fails for its format only
		}
		k, ok := cause.ErrorKind.(*kind.Type)
		if !ok && len(cause.Causes) == 1 {
			k, ok = cause.Causes[0].ErrorKind.(*kind.Type)
		}
		if types = types && ok && len(found) == 1 && found[0].Field == field; types {
			wanted = append(wanted, k.Want...)
		}
	}
	if types && len(wanted) > 0 {
		return []Mismatch{{field, field + ": wanted " + orList(wanted)}}
	}
	if len(e.Causes) == 0 {
		return []Mismatch{{field, field + ": fits more than one of the allowed forms"}}
	}
	first := leaves(e.Causes[0])[0]
	return []Mismatch{{field, fmt.Sprintf("%s: fits none of its %d forms (the first: %s)", field, len(e.Causes), first.Message)}}
}

func missing(field string, names []string) []Mismatch {
	var out []Mismatch
	for _, name := range names {
		path := field + "." + name
		out = append(out, Mismatch{path, path + ": is required and missing"})
	}
	return out
}

func extra(field string, names []string) []Mismatch {
	names = slices.Sorted(slices.Values(names))
	var out []Mismatch
	for _, name := range names {
		path := field + "." + name
		out = append(out, Mismatch{path, path + ": is not a known property"})
	}
	return out
}

// described covers the rarer rules in the few words that they need.
func described(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.MinLength:
		return fmt.Sprintf("wanted at least %d characters, got %d", k.Want, k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("wanted at most %d characters, got %d", k.Want, k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("wanted at least %d items, got %d", k.Want, k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("wanted at most %d items, got %d", k.Want, k.Got)
	case *kind.Minimum:
		return "wanted a number of at least " + k.Want.RatString()
	case *kind.Maximum:
		return "wanted a number of at most " + k.Want.RatString()
	case *kind.ExclusiveMinimum:
		return "wanted a number above " + k.Want.RatString()
	case *kind.ExclusiveMaximum:
		return "wanted a number below " + k.Want.RatString()
	case *kind.Pattern:
		return "wanted text that matches " + k.Want
	}
	return "breaks the rule " + strings.Join(k.KeywordPath(), "/")
}

func fieldPath(location []string) string {
	var b strings.Builder
	b.WriteString("arguments")
	for _, step := range location {
		if _, err := strconv.Atoi(step); err == nil {
			b.WriteString("[" + step + "]")
		} else {
			b.WriteString("." + step)
		}
	}
	return b.String()
}

func orList(types []string) string {
	named := make([]string, 0, len(types))
	for _, t := range types {
		if a := article(t); !slices.Contains(named, a) {
			named = append(named, a)
		}
	}
	if i := slices.Index(named, "null"); i >= 0 { // the exception comes last
		named = append(slices.Delete(named, i, i+1), "null")
	}
	return strings.Join(named, " or ")
}

func article(t string) string {
	switch t {
	case "object", "integer", "array":
		return "an " + t
	case "null":
		return t
	}
	return "a " + t
}

func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "number"
}

// maxValues bounds how many allowed values are listed.
const maxValues = 12

func values(allowed []any) string {
	var out []string
	for i, v := range allowed {
		if i == maxValues {
			out = append(out, "…")
			break
		}
		text, err := json.Marshal(v)
		if err != nil {
			text = fmt.Append(nil, v)
		}
		out = append(out, string(text))
	}
	return strings.Join(out, ", ")
}
