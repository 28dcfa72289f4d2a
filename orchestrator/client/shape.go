package client

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// shape is a type, in no language yet.
type shape struct {
	kind    kind
	word    string     // primitive: its name; literal: JSON
	of      []*shape   // union, intersection, tuple; list: the one of its items
	rest    *shape     // tuple: what may follow; record: what other properties are, nil for none
	least   int        // tuple: how many there are at least
	members []property // record
	name    *named     // reference
}

type kind int

const (
	anything kind = iota
	nothing
	primitive // string, number, boolean, null
	literal
	union
	intersection
	list
	tuple
	record
	reference
)

type property struct {
	name     string
	doc      string
	required bool
	shape    *shape
}

// named is a definition that is referred to.
type named struct {
	name  string
	shape *shape
}

// shapes turns the schemas of one tool into shapes. What a schema forbids in
// ways that types can't say is left out: a shape takes at least what the schema
// takes.
type shapes struct {
	prefix string // of the names of definitions
	root   any
	byRef  map[string]*named
	taken  map[string]bool
	order  []*named
	budget int
}

// Bounds of what one tool's types come to. A stranger wrote its schemas.
const (
	maxShapes     = 3000
	maxDepth      = 24
	maxEnum       = 120
	maxTuple      = 32
	maxProperties = 400
	maxChoices    = 60
)

func newShapes(prefix string, root any) *shapes {
	return &shapes{prefix: prefix, root: root, byRef: map[string]*named{}, taken: map[string]bool{}, budget: maxShapes}
}

// read is the shape of the whole schema, without circles that no language takes.
func (s *shapes) read() *shape {
	top := s.shape(s.root, 0)
	breakCircles(s.order)
	return top
}

func (s *shapes) shape(schema any, depth int) *shape {
	s.budget--
	o, ok := schema.(*object)
	if depth > maxDepth || s.budget < 0 {
		return &shape{kind: anything}
	}
	if !ok {
		if schema == false {
			return &shape{kind: nothing}
		}
		return &shape{kind: anything}
	}
	var all []*shape
	for _, part := range []*shape{s.ref(o, depth), s.fixed(o), s.plain(o, depth), s.choice(o, "anyOf", depth), s.choice(o, "oneOf", depth), s.every(o, depth)} {
		if part != nil && part.kind != anything {
			all = append(all, part)
		}
	}
	found := join(intersection, all)
	if o.get("nullable") == true {
		return join(union, []*shape{found, {kind: primitive, word: "null"}})
	}
	return found
}

// join makes one shape of several; none is anything.
func join(k kind, all []*shape) *shape {
	var flat []*shape
	for _, part := range all {
		if part.kind == k {
			flat = append(flat, part.of...)
		} else {
			flat = append(flat, part)
		}
	}
	seen := map[string]bool{}
	var distinct []*shape
	for _, part := range flat {
		if part.kind == anything && k == union {
			return &shape{kind: anything}
		}
		if key := simple(part); key != "" {
			if seen[key] {
				continue
			}
			seen[key] = true
		}
		distinct = append(distinct, part)
	}
	switch len(distinct) {
	case 0:
		return &shape{kind: anything}
	case 1:
		return distinct[0]
	}
	return &shape{kind: k, of: distinct}
}

// simple is a key by which equal shapes are found, where that is easy.
func simple(s *shape) string {
	switch s.kind {
	case primitive, literal:
		return fmt.Sprint(s.kind, s.word)
	case reference:
		return "ref " + s.name.name
	}
	return ""
}

func (s *shapes) ref(o *object, depth int) *shape {
	ref := o.text("$ref")
	if ref == "" {
		ref = o.text("$dynamicRef")
	}
	if ref == "" {
		return nil
	}
	if known := s.byRef[ref]; known != nil {
		return &shape{kind: reference, name: known}
	}
	target, ok := resolve(s.root, ref)
	if !ok {
		return nil
	}
	n := &named{name: s.free(ref)}
	s.byRef[ref] = n
	s.order = append(s.order, n)
	n.shape = s.shape(target, depth/2) // a definition stands by itself; the budget ends what is endless
	return &shape{kind: reference, name: n}
}

// free makes a name of a reference's last step.
func (s *shapes) free(ref string) string {
	last := ref[strings.LastIndexAny(ref, "/#")+1:]
	var b strings.Builder
	for _, r := range last {
		if word(r) && b.Len() < 40 {
			b.WriteRune(r)
		}
	}
	if b.Len() == 0 {
		b.WriteString("Self")
	}
	base := s.prefix + "$" + b.String() // a sign that no tool's name has
	name := base
	for i := 2; s.taken[name]; i++ {
		name = base + "_" + strconv.Itoa(i)
	}
	s.taken[name] = true
	return name
}

func word(r rune) bool {
	return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// fixed is const and enum.
func (s *shapes) fixed(o *object) *shape {
	if o.has("const") {
		return literalOf(o.get("const"))
	}
	values := o.list("enum")
	if len(values) == 0 || len(values) > maxEnum {
		return nil
	}
	var all []*shape
	for _, v := range values {
		all = append(all, literalOf(v))
	}
	return join(union, all)
}

func literalOf(value any) *shape {
	switch v := value.(type) {
	case nil:
		return &shape{kind: primitive, word: "null"}
	case string:
		return &shape{kind: literal, word: quoted(v)}
	case bool:
		return &shape{kind: literal, word: strconv.FormatBool(v)}
	case json.Number:
		if f, err := strconv.ParseFloat(v.String(), 64); err != nil || math.IsInf(f, 0) {
			return &shape{kind: primitive, word: "number"}
		}
		return &shape{kind: literal, word: v.String()}
	case []any:
		return &shape{kind: list, of: []*shape{{kind: anything}}}
	}
	return &shape{kind: record, rest: &shape{kind: anything}}
}

// quoted is a JSON string that is a string of JavaScript and Python too.
func quoted(text string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(text) != nil {
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// plain is what the keywords of the types themselves say.
func (s *shapes) plain(o *object, depth int) *shape {
	if o.has("const", "enum") && !o.has("properties", "items", "prefixItems") && len(o.list("enum")) <= maxEnum {
		return nil // they say more than the type does
	}
	var all []*shape
	for _, t := range types(o) {
		switch t {
		case "string", "boolean", "null", "number":
			all = append(all, &shape{kind: primitive, word: t})
		case "integer":
			all = append(all, &shape{kind: primitive, word: "number"})
		case "array":
			all = append(all, s.array(o, depth))
		case "object":
			all = append(all, s.record(o, depth))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return join(union, all)
}

// types are those that are named, or that the other keywords are about.
func types(o *object) []string {
	switch t := o.get("type").(type) {
	case string:
		return []string{t}
	case []any:
		var all []string
		for _, v := range t {
			if name, ok := v.(string); ok && len(all) < 8 {
				all = append(all, name)
			}
		}
		return all
	}
	switch {
	case o.has("properties", "patternProperties", "required") || o.sub("additionalProperties") != nil:
		return []string{"object"}
	case o.has("items", "prefixItems"):
		return []string{"array"}
	}
	return nil
}

func (s *shapes) array(o *object, depth int) *shape {
	first, items, closed := o.list("prefixItems"), o.get("items"), false
	if old, ok := items.([]any); ok { // before 2020-12
		first, items = old, o.get("additionalItems")
	}
	if len(first) == 0 {
		if items == nil {
			items = true
		}
		return &shape{kind: list, of: []*shape{s.shape(items, depth+1)}}
	}
	t := &shape{kind: tuple, least: min(o.count("minItems", 0), len(first), maxTuple)}
	for _, item := range first[:min(len(first), maxTuple)] {
		t.of = append(t.of, s.shape(item, depth+1))
	}
	closed = items == false || o.count("maxItems", math.MaxInt32) <= len(first)
	if !closed || len(first) > maxTuple {
		t.rest = s.shape(items, depth+1)
		if len(first) > maxTuple {
			t.rest = &shape{kind: anything}
		}
	}
	return t
}

func (s *shapes) record(o *object, depth int) *shape {
	r := &shape{kind: record}
	required := map[string]bool{}
	for _, v := range o.list("required") {
		if name, ok := v.(string); ok {
			required[name] = true
		}
	}
	properties := o.sub("properties")
	names := []string{}
	if properties != nil {
		names = properties.names
	}
	for _, name := range names[:min(len(names), maxProperties)] {
		value := properties.get(name)
		r.members = append(r.members, property{name: name, doc: docOf(value), required: required[name], shape: s.shape(value, depth+1)})
		delete(required, name)
	}
	for _, v := range o.list("required") {
		if name, ok := v.(string); ok && required[name] && len(r.members) < maxProperties {
			r.members = append(r.members, property{name: name, required: true, shape: &shape{kind: anything}})
			delete(required, name)
		}
	}
	r.rest = s.others(o, len(r.members) > 0 || len(names) > maxProperties, depth)
	return r
}

// others is what properties may be that are not named. A schema that says
// nothing takes any; but then a name that is not there is more likely a
// mistake than meant, so types don't take it.
func (s *shapes) others(o *object, some bool, depth int) *shape {
	switch {
	case o.has("patternProperties"), some && o.get("additionalProperties") != nil && o.get("additionalProperties") != false:
		return &shape{kind: anything}
	case len(o.sub("properties").keys()) > maxProperties:
		return &shape{kind: anything}
	case some:
		return nil
	case o.get("additionalProperties") == false:
		return &shape{kind: nothing}
	case o.get("additionalProperties") == nil:
		return &shape{kind: anything}
	}
	return s.shape(o.get("additionalProperties"), depth+1)
}

func (o *object) keys() []string {
	if o == nil {
		return nil
	}
	return o.names
}

// docOf is a property's description with what types can't say.
func docOf(schema any) string {
	o, _ := schema.(*object)
	if o == nil {
		return ""
	}
	parts := []string{}
	if text := strings.TrimSpace(o.text("description")); text != "" {
		parts = append(parts, text)
	} else if title := strings.TrimSpace(o.text("title")); title != "" {
		parts = append(parts, title)
	}
	switch value := o.get("default").(type) {
	case string:
		parts = append(parts, "Default: "+quoted(value))
	case json.Number:
		parts = append(parts, "Default: "+value.String())
	case bool:
		parts = append(parts, "Default: "+strconv.FormatBool(value))
	}
	return strings.Join(parts, "\n")
}

func (s *shapes) choice(o *object, keyword string, depth int) *shape {
	forms := o.list(keyword)
	if len(forms) == 0 || len(forms) > maxChoices {
		return nil
	}
	var all []*shape
	for _, form := range forms {
		all = append(all, s.shape(form, depth+1))
	}
	return join(union, all)
}

func (s *shapes) every(o *object, depth int) *shape {
	forms := o.list("allOf")
	if len(forms) == 0 || len(forms) > maxChoices {
		return nil
	}
	var all []*shape
	for _, form := range forms {
		if part := s.shape(form, depth+1); part.kind != anything {
			all = append(all, part)
		}
	}
	return join(intersection, all)
}

// breakCircles replaces references by which a definition would be itself and
// not merely contain itself.
func breakCircles(all []*named) {
	state := map[*named]int{}
	var visit func(n *named)
	var walk func(s *shape)
	walk = func(s *shape) {
		switch s.kind {
		case union, intersection:
			for _, part := range s.of {
				walk(part)
			}
		case reference:
			if state[s.name] == 1 {
				*s = shape{kind: anything}
				return
			}
			visit(s.name)
		}
	}
	visit = func(n *named) {
		if state[n] != 0 {
			return
		}
		state[n] = 1
		walk(n.shape)
		state[n] = 2
	}
	for _, n := range all {
		visit(n)
	}
}
