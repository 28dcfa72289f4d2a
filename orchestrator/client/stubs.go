package client

import (
	_ "embed"
	"strings"

	"mcpx/orchestrator/tool"
)

//go:embed runtime/python/header.pyi
var pythonHeader string

// pythonStubs are the declarations that type checkers and people read; a
// running program does not.
func pythonStubs(servers []tool.Server) []byte {
	p := &printer{}
	p.WriteString(pythonHeader)
	for _, s := range servers {
		for _, t := range s.Tools {
			p.pythonTool(s, t)
		}
		p.pythonNamespace(s)
	}
	p.WriteString("\nclass _Tools:\n")
	for _, s := range servers {
		p.WriteString("    " + s.Namespace + ": _" + s.Namespace + "\n")
	}
	p.WriteString("    def __getitem__(self, server: str) -> Any: ...\n\ntools: _Tools\n")
	return []byte(p.String())
}

func (p *printer) pythonNamespace(s tool.Server) {
	p.WriteString("\nclass _" + s.Namespace + ":\n")
	p.pythonDoc("    ", s.Description)
	for _, t := range s.Tools {
		p.WriteString("    " + t.Function + ": _" + s.Namespace + "__" + t.Function + "\n")
	}
	if s.Err != "" {
		p.WriteString("    def __getattr__(self, name: str) -> Any: ...\n")
	}
	p.WriteString("    def __getitem__(self, name: str) -> Any: ...\n")
}

func (p *printer) pythonTool(s tool.Server, t tool.Tool) {
	input := schemaOf(t.InputSchema)
	args, value := newShapes("", input).read(), newShapes("", schemaOf(t.OutputSchema)).read()
	p.WriteString("\nclass _" + s.Namespace + "__" + t.Function + ":\n")
	p.pythonDoc("    ", t.Description)
	named, whole := pythonParameters(args)
	overload := ""
	if named {
		overload = "    @overload\n"
		p.WriteString(overload + "    def __call__(self, *, " + whole + ") -> " + value.py() + ": ...\n")
	}
	p.WriteString(overload + "    def __call__(self, arguments: Mapping[str, Any]" + pythonDefault(input) + ", /) -> " + value.py() + ": ...\n")
	p.WriteString("    def raw(self, arguments: Optional[Mapping[str, Any]] = ..., /, **named: Any) -> Dict[str, Any]: ...\n")
}

func pythonDefault(schema any) string {
	if needsArguments(schema) {
		return ""
	}
	return " = ..."
}

// pythonParameters are the arguments by keyword, where all required ones can be
// given so.
func pythonParameters(s *shape) (ok bool, list string) {
	var required, optional []string
	for _, m := range s.members {
		if !pythonName(m.name) {
			if m.required {
				return false, ""
			}
			continue
		}
		if m.required {
			required = append(required, m.name+": "+m.shape.py())
		} else {
			optional = append(optional, m.name+": "+m.shape.py()+" = ...")
		}
	}
	all := append(required, optional...)
	if s.kind == record && s.rest != nil && len(all) > 0 {
		all = append(all, "**more: Any")
	}
	return len(all) > 0, strings.Join(all, ", ")
}

func pythonName(name string) bool {
	if !bare.MatchString(name) || strings.Contains(name, "$") || name == "self" {
		return false
	}
	switch name {
	case "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
		"elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
		"not", "or", "pass", "raise", "return", "try", "while", "with", "yield":
		return false
	}
	return !strings.HasPrefix(name, "__")
}

// py is the shape in Python. What it can't say in a word is Any.
func (s *shape) py() string {
	switch s.kind {
	case primitive:
		return map[string]string{"string": "str", "number": "float", "boolean": "bool", "null": "None"}[s.word]
	case literal:
		return s.pyLiteral()
	case union:
		var parts []string
		for _, part := range s.of {
			parts = append(parts, part.py())
		}
		return "Union[" + strings.Join(parts, ", ") + "]"
	case list:
		return "List[" + s.of[0].py() + "]"
	case tuple:
		return "Sequence[Any]"
	case record:
		if len(s.members) == 0 && s.rest != nil && s.rest.kind != nothing {
			return "Dict[str, " + s.rest.py() + "]"
		}
		return "Dict[str, Any]"
	}
	return "Any"
}

func (s *shape) pyLiteral() string {
	switch {
	case s.word == "true":
		return "Literal[True]"
	case s.word == "false":
		return "Literal[False]"
	case strings.HasPrefix(s.word, `"`):
		return "Literal[" + s.word + "]"
	case strings.ContainsAny(s.word, ".eE"):
		return "float" // only whole numbers can be literals
	}
	return "Literal[" + s.word + "]"
}

// pythonDoc writes a stranger's text as a docstring that it can't end.
func (p *printer) pythonDoc(indent, text string) {
	lines := docLines(text)
	if len(lines) == 0 {
		return
	}
	text = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(strings.Join(lines, "\n"))
	p.WriteString(indent + `"""` + strings.ReplaceAll(text, "\n", "\n"+indent) + "\"\"\"\n")
}
