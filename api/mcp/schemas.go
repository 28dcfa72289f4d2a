package mcp

import (
	"maps"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"mcpx/api/rest"
	"mcpx/orchestrator/run"
)

type properties = map[string]*jsonschema.Schema

func str(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Description: description}
}

func strs(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string"}, Description: description}
}

// object takes no more than its properties; those in required must be there.
func object(p properties, required ...string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", Properties: p, Required: required, AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}}
}

// aboutOptions says what a model has to know of the options that it may want.
// The others are named without a word: a description is paid for in every
// conversation.
var aboutOptions = map[string]string{
	"runtime":     "interpreter, when there is no #!: deno, node, python3, bash, ...",
	"timeout":     `wall clock, such as "30s"`,
	"args":        "the script's arguments",
	"env":         "variables",
	"stdin":       "standard input",
	"session":     "keeps stateful tools (a browser) across calls that name it",
	"cwd":         "working directory on mcpx's side",
	"inputs":      "files for $MCPX_INBOX: name to text or artifact id",
	"files":       "modules beside the script: path to text",
	"ns":          "only these namespaces",
	"phases":      "source lines around the program",
	"label":       "shown in listings",
	"typecheck":   "off, on or strict",
	"cwdPolicy":   "caller, script, config or workdir",
	"export":      "function to call instead of the default export",
	"allowRepeat": "launcher holes that may be filled more than once",
}

// notHere are options about the form of an HTTP answer.
var notHere = []string{"output", "task", "capabilities", "artifacts"}

func optionsSchema() *jsonschema.Schema {
	s := must(rest.RequestSchema(reflect.TypeFor[run.Options]()))
	for _, name := range notHere {
		delete(s.Properties, name)
	}
	s.PropertyOrder = nil
	for name, about := range aboutOptions {
		s.Properties[name].Description = about
	}
	return s
}

func execSchema() *jsonschema.Schema {
	return object(properties{"source": str("the program's text"), "options": optionsSchema()}, "source")
}

// runSchema does not repeat the options, for the same reason.
func runSchema() *jsonschema.Schema {
	return object(properties{
		"file":    str("name or path"),
		"options": {Type: "object", Description: "as in mcpx_exec; args are the script's arguments"},
	}, "file")
}

func lsSchema() *jsonschema.Schema { return object(properties{"ns": str("a namespace")}) }

func searchSchema() *jsonschema.Schema {
	least, most := 1.0, float64(maxHits)
	return object(properties{
		"query": str("words"),
		"limit": {Type: "integer", Minimum: &least, Maximum: &most, Description: "most results, 10 if left out"},
	}, "query")
}

func typesSchema() *jsonschema.Schema {
	return object(properties{
		"ns":        str("the namespace"),
		"functions": strs("only these"),
		"lang":      str("typescript (default) or another language that mcpx has a client for"),
	}, "ns")
}

func callSchema() *jsonschema.Schema {
	return object(properties{
		"ns":        str("the namespace"),
		"fn":        str("the function"),
		"arguments": {Type: "object", Description: "as mcpx_types shows them"},
		"inline":    {Type: "boolean", Description: "images and other media as they are, not as links"},
	}, "ns", "fn")
}

func resultSchema() *jsonschema.Schema { return must(rest.AnswerSchema(reflect.TypeFor[run.Result]())) }
func listSchema() *jsonschema.Schema   { return must(rest.AnswerSchema(reflect.TypeFor[Listing]())) }
func hitsSchema() *jsonschema.Schema   { return must(rest.AnswerSchema(reflect.TypeFor[Found]())) }

// must is for schemas of our own types, which a test makes.
func must(s *jsonschema.Schema, err error) *jsonschema.Schema {
	if err != nil {
		panic(err)
	}
	return s
}

// optionNames are the options that mcpx_exec takes.
func optionNames() []string { return slices.Sorted(maps.Keys(optionsSchema().Properties)) }
