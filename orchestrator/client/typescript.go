package client

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/tool"
)

var (
	//go:embed runtime/js/mcpx.js
	jsRuntime []byte
	//go:embed runtime/js/mcpx.d.ts
	tsHeader []byte
)

// typescript is JavaScript, for deno, bun and node load that as it is; its
// declarations are files of their own.
func typescript(servers []tool.Server) ([]engine.File, error) {
	names, err := index(servers)
	if err != nil {
		return nil, err
	}
	return []engine.File{
		file("mcpx.js", jsRuntime),
		file("index.js", fmt.Appendf(nil, "export default JSON.parse(%s);\n", quoted(string(names)))),
		file("package.json", []byte("{\"name\": \"mcpx\", \"type\": \"module\", \"exports\": \"./mcpx.js\", \"types\": \"./mcpx.d.ts\"}\n")),
	}, nil
}

// declarations are the types of the client, for the servers given.
func declarations(servers []tool.Server) string {
	p := &printer{}
	p.Write(tsHeader) //nolint:errcheck // a builder does not fail
	p.open("\n/** The servers' tools, by namespace. */\nexport interface Tools {")
	for _, s := range servers {
		p.doc(s.Description)
		p.line("readonly %s: $%s.Namespace;", s.Namespace, s.Namespace)
	}
	p.close("}")
	for _, s := range servers {
		p.namespace(s)
	}
	return p.String()
}

// globalDeclarations are what a snippet may name without importing it.
func globalDeclarations(servers []tool.Server) string {
	p := &printer{}
	p.line("import type * as mcpx from \"./mcpx.js\";")
	p.open("declare global {")
	for _, name := range globals() {
		p.line("const %s: typeof mcpx.%s;", name, name)
	}
	p.line("type ToolError = mcpx.ToolError;")
	for _, s := range servers {
		p.line("const %s: mcpx.Tools[%s];", s.Namespace, quoted(s.Namespace))
	}
	p.close("}")
	return p.String()
}

// globals are the names of the client that a snippet may use as they are.
func globals() []string {
	return []string{"tools", "emit", "result", "artifact", "input", "log", "ToolError"}
}

// printer writes TypeScript.
type printer struct {
	strings.Builder
	depth int
}

func (p *printer) line(format string, args ...any) {
	p.WriteString(strings.Repeat("  ", p.depth))
	fmt.Fprintf(p, format, args...)
	p.WriteByte('\n')
}

func (p *printer) open(format string, args ...any) {
	p.line(format, args...)
	p.depth++
}

func (p *printer) close(text string) {
	p.depth--
	p.line("%s", text)
}

// maxDoc bounds a description; the whole one is in the catalogue.
const maxDoc = 2000

// doc writes a stranger's text as a comment that it can't end.
func (p *printer) doc(text string) {
	lines := docLines(text)
	switch len(lines) {
	case 0:
	case 1:
		p.line("/** %s */", lines[0])
	default:
		p.line("/**")
		for _, text := range lines {
			p.line("%s", strings.TrimRight(" * "+text, " "))
		}
		p.line(" */")
	}
}

func docLines(text string) []string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > maxDoc {
		text = strings.ToValidUTF8(text[:maxDoc], "") + " …"
	}
	text = strings.NewReplacer("*/", "*\\/", "\r\n", "\n", "\r", "\n", "\u2028", "\n", "\u2029", "\n").Replace(text)
	text = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return -1 // control characters; those that turn the direction hide what stands there
		}
		return r
	}, text)
	text = strings.TrimSpace(strings.ReplaceAll(text, "*/", "*\\/")) // what was taken out may have stood between
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func (p *printer) namespace(s tool.Server) {
	p.WriteByte('\n')
	p.open("export declare namespace $%s {", s.Namespace)
	var functions printer
	functions.depth = p.depth + 1
	for _, t := range s.Tools {
		functions.function(p, t)
	}
	p.open("interface Namespace {")
	p.WriteString(functions.String())
	if s.Err != "" {
		p.doc("The tools of this server are not known.")
		p.line("readonly [name: string]: any;")
	}
	p.close("}")
	p.close("}")
}

// function writes a tool, and its definitions to where they belong.
func (p *printer) function(definitions *printer, t tool.Tool) {
	input := schemaOf(t.InputSchema)
	args := typeOf(definitions, t.Function, input)
	value := typeOf(definitions, t.Function+"$", schemaOf(t.OutputSchema))
	kind := "Tool"
	if !needsArguments(input) {
		kind = "ToolWithOptionalArguments"
	}
	doc := t.Description
	if doc == "" {
		doc = t.Title
	}
	p.doc(doc)
	p.line("readonly %s: %s<%s, %s>;", t.Function, kind, args.ts(p.depth), value.ts(p.depth))
}

// schemaOf reads a schema. One that can't be read is any: that the server's
// tools can be called matters more.
func schemaOf(text []byte) any {
	if len(text) == 0 {
		return true
	}
	root, err := decode(text)
	if err != nil {
		return true
	}
	return root
}

func typeOf(definitions *printer, prefix string, schema any) *shape {
	all := newShapes(prefix, schema)
	top := all.read()
	for _, n := range all.order {
		definitions.line("type %s = %s;", n.name, n.shape.ts(definitions.depth))
	}
	return top
}

// needsArguments tells whether a call without arguments can't be right.
func needsArguments(schema any) bool {
	o, _ := schema.(*object)
	return o != nil && (len(o.list("required")) > 0 || o.has("$ref", "anyOf", "oneOf", "allOf"))
}

// ts is the shape in TypeScript, where depth is that of the line it begins on.
func (s *shape) ts(depth int) string {
	switch s.kind {
	case nothing:
		return "never"
	case primitive, literal:
		return s.word
	case reference:
		return s.name.name
	case union:
		return s.joined(" | ", depth)
	case intersection:
		return s.joined(" & ", depth)
	case list:
		return s.of[0].operand(depth) + "[]"
	case tuple:
		return s.tuple(depth)
	case record:
		return s.record(depth)
	}
	return "any"
}

func (s *shape) joined(by string, depth int) string {
	parts := make([]string, len(s.of))
	for i, part := range s.of {
		parts[i] = part.operand(depth)
	}
	return strings.Join(parts, by)
}

// operand is text that can stand beside an operator.
func (s *shape) operand(depth int) string {
	if s.kind == union || s.kind == intersection {
		return "(" + s.ts(depth) + ")"
	}
	return s.ts(depth)
}

func (s *shape) tuple(depth int) string {
	parts := make([]string, 0, len(s.of)+1)
	for i, part := range s.of {
		if i < s.least {
			parts = append(parts, part.ts(depth))
		} else {
			parts = append(parts, part.operand(depth)+"?")
		}
	}
	if s.rest != nil {
		parts = append(parts, "..."+s.rest.operand(depth)+"[]")
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func (s *shape) record(depth int) string {
	if len(s.members) == 0 {
		if s.rest == nil {
			return "{}"
		}
		return "{ [name: string]: " + s.rest.ts(depth) + " }"
	}
	p := printer{depth: depth + 1}
	for _, m := range s.members {
		p.doc(m.doc)
		mark := "?"
		if m.required {
			mark = ""
		}
		kind := m.shape.ts(p.depth)
		if inherited(m.name) {
			kind = "any"
		}
		p.line("%s%s: %s;", propertyName(m.name), mark, kind)
	}
	if s.rest != nil {
		p.line("[name: string]: any;")
	}
	return "{\n" + p.String() + strings.Repeat("  ", depth) + "}"
}

var bare = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

// inherited tells of names that every object has: TypeScript takes an object
// without such a property for one with the inherited.
func inherited(name string) bool {
	switch name {
	case "constructor", "toString", "toLocaleString", "valueOf", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable":
		return true
	}
	return false
}

func propertyName(name string) string {
	switch name {
	case "constructor", "new", "get", "set", "readonly", "__proto__":
		return quoted(name)
	}
	if bare.MatchString(name) {
		return name
	}
	return quoted(name)
}
