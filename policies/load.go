package policies

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Builtin names the document that mcpx brings.
const Builtin = "builtin"

//go:embed default.yaml
var builtinText []byte

// Default is the built-in document.
func Default() *Document {
	own := builtinContent()
	doc, problems := assemble(Builtin, own, own)
	if len(problems) > 0 {
		panic("built-in policy: " + problems[0].String()) // a test reads it
	}
	return doc
}

// BuiltinText is the built-in document's YAML, for people to read and start from.
func BuiltinText() string { return string(builtinText) }

// Load reads a document from a file.
func Load(path string) (*Document, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return Parse(path, data)
}

// Parse reads a document; name is its path, or what to call it. Everything that
// is wrong with it is in one *LoadError.
func Parse(name string, data []byte) (*Document, error) {
	doc, problems := read(name, data)
	if errs := bySeverity(problems, SeverityError); len(errs) > 0 {
		return nil, &LoadError{Name: name, Problems: errs}
	}
	doc.Warnings = bySeverity(problems, SeverityWarning)
	return doc, nil
}

// Check lists what is wrong with a document, warnings among it, by line.
func Check(data []byte) []Problem {
	_, problems := read("policy", data)
	return problems
}

func read(name string, data []byte) (*Document, []Problem) {
	short := filepath.Base(name)
	own, problems := decode(short, data)
	if len(problems) > 0 {
		return nil, sortProblems(problems)
	}
	doc, problems := assemble(short, own, builtinContent())
	return doc, sortProblems(problems)
}

// builtinContent is where a document's unset values come from.
func builtinContent() content {
	c, problems := decode(Builtin, builtinText)
	if len(problems) > 0 {
		panic("built-in policy: " + problems[0].String())
	}
	return c
}
