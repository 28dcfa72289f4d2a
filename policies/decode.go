package policies

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// MaxBytes is the largest document that is read.
const MaxBytes = 1 << 20

// maxDepth is more than a document can need; the parser recurses.
const maxDepth = 64

// content is a document as it was written: values in their order, none of them
// inherited yet.
type content struct {
	extends  string
	defaults []assignment
	rules    []ruleContent
	order    []string
	ordered  bool
	orderAt  source
}

type ruleContent struct {
	name   string
	at     source
	values []assignment
}

// assignment is one key that a document sets.
type assignment struct {
	key  string
	set  func(*Rule)
	from source
}

// decoder walks the YAML tree and notes every problem on its way.
type decoder struct {
	name     string
	table    []field
	problems []Problem
}

// decode reads a document's text. It goes on after a problem, so that one look
// shows them all; a syntax error is the exception.
func decode(name string, data []byte) (content, []Problem) {
	d := &decoder{name: name, table: fields()}
	root, err := parseYAML(data)
	if err != nil {
		return content{}, []Problem{syntaxProblem(err)}
	}
	return d.document(root), d.problems
}

// parseYAML yields the root node. A panic of the parser on odd input is taken
// for a syntax error.
func parseYAML(data []byte) (root ast.Node, err error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("the document has %d bytes and may have %d", len(data), MaxBytes)
	}
	if tooDeep(data) {
		return nil, errors.New("the document is nested too deeply")
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("this is not YAML: %v", r)
		}
	}()
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, err
	}
	if len(file.Docs) > 1 {
		return nil, errors.New("several documents in one file; a policy is one")
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, errors.New("the document is empty; it needs at least version: 1")
	}
	return file.Docs[0].Body, nil
}

// tooDeep bounds what makes the parser recurse.
func tooDeep(data []byte) bool {
	depth := 0
	for _, line := range strings.Split(string(data), "\n") {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		dashes := strings.Count(line, "- ") + strings.Count(line, "? ") + strings.Count(line, ": ")
		depth += strings.Count(line, "[") + strings.Count(line, "{") - strings.Count(line, "]") - strings.Count(line, "}")
		if indent > 2*maxDepth || dashes > 2*maxDepth || depth > maxDepth {
			return true
		}
	}
	return false
}

func syntaxProblem(err error) Problem {
	p := Problem{Line: 1, Column: 1, Message: err.Error(), Severity: SeverityError}
	if located, ok := errors.AsType[yaml.Error](err); ok {
		p.Message = located.GetMessage()
		if token := located.GetToken(); token != nil && token.Position != nil {
			p.Line, p.Column = token.Position.Line, token.Position.Column
		}
	}
	return p
}

func (d *decoder) document(root ast.Node) content {
	var c content
	entries, ok := mapping(root)
	if !ok {
		d.fail(root, "", "expected a mapping that begins with version: 1, found %s", nodeKind(root))
		return c
	}
	versioned := false
	for _, e := range entries {
		switch key := d.key(e, ""); key {
		case "version":
			versioned = true
			if v, err := readInt(e.Value); err != nil || v != 1 {
				d.fail(e.Value, key, "this mcpx reads version 1")
			}
		case "extends":
			c.extends = d.extends(e)
		case "defaults":
			c.defaults = d.values(e.Value, "defaults", "", false)
		case "interpreters":
			c.rules = d.rules(e.Value)
		case "order":
			c.ordered, c.orderAt = true, d.at(e.Value, key)
			c.order = d.list(e)
		case "":
		default:
			d.fail(e.Key, "", "unknown key %q; known are version, extends, defaults, interpreters, order", cut(key))
		}
	}
	if !versioned {
		d.fail(root, "version", "is missing; write version: 1")
	}
	return c
}

func (d *decoder) extends(e *ast.MappingValueNode) string {
	text, err := readText(e.Value)
	if err == nil && text != Builtin {
		err = fmt.Errorf("%q is unknown; only %s can be extended", cut(text), Builtin)
	}
	d.check(e.Value, "extends", err)
	return text
}

func (d *decoder) list(e *ast.MappingValueNode) []string {
	list, err := readTexts(e.Value)
	d.check(e.Value, "order", err)
	return list
}

func (d *decoder) rules(n ast.Node) []ruleContent {
	entries, ok := mapping(n)
	if !ok {
		d.fail(n, "interpreters", "expected a mapping of names, found %s", nodeKind(n))
		return nil
	}
	var list []ruleContent
	for _, e := range entries {
		name := d.key(e, "interpreters")
		if name == "" {
			continue
		}
		field := "interpreters." + cut(name)
		d.check(e.Key, field, matches(wordForm, "a lower-case name")(name))
		list = append(list, ruleContent{name: name, at: d.at(e.Key, field), values: d.values(e.Value, field, "", true)})
	}
	return list
}

// values reads the keys below a rule or the defaults; prefix is "" or "output.".
func (d *decoder) values(n ast.Node, where, prefix string, own bool) []assignment {
	entries, ok := mapping(n)
	if !ok {
		d.fail(n, strings.TrimSuffix(where+"."+prefix, "."), "expected a mapping, found %s", nodeKind(n))
		return nil
	}
	var list []assignment
	for _, e := range entries {
		key := d.key(e, where)
		if key == "" {
			continue
		}
		if strings.Contains(key, ".") {
			key = "?" + key // a path as one key would be a second spelling
		}
		key = prefix + key
		if d.isGroup(key) {
			list = append(list, d.values(e.Value, where, key+".", own)...)
		} else if set := d.value(e, where, key, own); set != nil {
			list = append(list, assignment{key: key, set: set, from: d.at(e.Key, where)})
		}
	}
	return list
}

func (d *decoder) value(e *ast.MappingValueNode, where, key string, own bool) func(*Rule) {
	at := slices.IndexFunc(d.table, func(f field) bool { return f.key == key })
	if at < 0 {
		d.fail(e.Key, where+"."+strings.Replace(cut(key), "?", "", 1), "unknown key; known are %s", strings.Join(d.known(own), ", "))
		return nil
	}
	if d.table[at].own && !own {
		d.fail(e.Key, where+"."+key, "describes one interpreter and cannot stand in defaults")
		return nil
	}
	set, err := d.table[at].read(e.Value)
	var place ast.Node = e.Value
	if _, null := e.Value.(*ast.NullNode); null {
		place = e.Key
	}
	d.check(place, where+"."+key, err)
	return set
}

// isGroup tells whether key is a mapping of further keys ("output").
func (d *decoder) isGroup(key string) bool {
	return slices.ContainsFunc(d.table, func(f field) bool { return strings.HasPrefix(f.key, key+".") })
}

func (d *decoder) known(own bool) []string {
	var keys []string
	for _, f := range d.table {
		if own || !f.own {
			keys = append(keys, f.key)
		}
	}
	return keys
}

// key yields an entry's key, "" after noting that it is none.
func (d *decoder) key(e *ast.MappingValueNode, where string) string {
	key, err := keyText(e)
	if err == nil && key == "" {
		err = errors.New("an empty key")
	}
	d.check(e.Key, where, err)
	return key
}

func keyText(e *ast.MappingValueNode) (string, error) {
	text, ok := e.Key.(*ast.StringNode)
	if !ok {
		return "", fmt.Errorf("expected a key, found %s", nodeKind(e.Key))
	}
	return text.Value, nil
}

// mapping yields a mapping's entries; `x: {}` and one entry alone are mappings too.
func mapping(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch v := n.(type) {
	case *ast.MappingNode:
		return v.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{v}, true
	}
	return nil, false
}

func (d *decoder) check(n ast.Node, field string, err error) {
	if err != nil {
		d.fail(n, field, "%s", err)
	}
}

func (d *decoder) fail(n ast.Node, field, format string, args ...any) {
	s := d.at(n, field)
	d.problems = append(d.problems, Problem{
		Line: s.line, Column: s.column, Field: field, Message: fmt.Sprintf(format, args...), Severity: SeverityError,
	})
}

func (d *decoder) at(n ast.Node, where string) source {
	s := source{doc: d.name, where: where, line: 1, column: 1}
	if n != nil && n.GetToken() != nil && n.GetToken().Position != nil {
		s.line, s.column = n.GetToken().Position.Line, n.GetToken().Position.Column
	}
	return s
}
