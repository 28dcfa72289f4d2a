package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
)

// object is a JSON object in the order in which it was written: a schema's
// author puts first what matters most.
type object struct {
	names  []string
	values map[string]any
}

func (o *object) get(name string) any {
	if o == nil {
		return nil
	}
	return o.values[name]
}

func (o *object) text(name string) string {
	text, _ := o.get(name).(string)
	return text
}

func (o *object) list(name string) []any {
	list, _ := o.get(name).([]any)
	return list
}

func (o *object) sub(name string) *object {
	sub, _ := o.get(name).(*object)
	return sub
}

// count reads a keyword such as minItems; missing says what it is without one.
func (o *object) count(name string, missing int) int {
	number, ok := o.get(name).(json.Number)
	if !ok {
		return missing
	}
	value, err := strconv.ParseFloat(number.String(), 64)
	if err != nil || value < 0 || value > 1<<20 {
		return missing
	}
	return int(value)
}

func (o *object) has(names ...string) bool {
	for _, name := range names {
		if _, ok := o.values[name]; ok {
			return true
		}
	}
	return false
}

// decode reads JSON into *object, []any, string, json.Number, bool and nil.
func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	value, err := decodeValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err == nil {
		return nil, errors.New("more than one JSON value")
	}
	return value, nil
}

// maxNesting is far above what any schema needs, and below what hurts.
const maxNesting = 1000

func decodeValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxNesting {
		return nil, errors.New("nested too deeply")
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return decodeObject(d, depth)
	case json.Delim('['):
		list := []any{}
		for d.More() {
			value, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err := d.Token()
		return list, err
	}
	return token, nil
}

func decodeObject(d *json.Decoder, depth int) (*object, error) {
	o := &object{values: map[string]any{}}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := token.(string)
		if !ok {
			return nil, errors.New("a name is not text")
		}
		value, err := decodeValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		if _, twice := o.values[name]; !twice {
			o.names = append(o.names, name)
		}
		o.values[name] = value
	}
	_, err := d.Token()
	return o, err
}

// resolve follows a reference within the schema: a JSON pointer, or an anchor.
func resolve(root any, ref string) (any, bool) {
	if top, ok := root.(*object); ok {
		if id := top.text("$id"); id != "" {
			ref = strings.TrimPrefix(ref, strings.TrimSuffix(id, "#"))
		}
	}
	fragment, ok := strings.CutPrefix(ref, "#")
	if !ok {
		if ref == "" {
			return root, true
		}
		return nil, false
	}
	if text, err := url.PathUnescape(fragment); err == nil {
		fragment = text
	}
	if fragment != "" && fragment[0] != '/' {
		return anchored(root, fragment)
	}
	at := root
	for step := range strings.SplitSeq(strings.TrimPrefix(fragment, "/"), "/") {
		if fragment == "" {
			break
		}
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch value := at.(type) {
		case *object:
			if at, ok = value.values[step]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(value) {
				return nil, false
			}
			at = value[i]
		default:
			return nil, false
		}
	}
	return at, true
}

// anchored finds $anchor among the definitions, where anchors are in practice.
func anchored(root any, name string) (any, bool) {
	top, _ := root.(*object)
	for _, key := range []string{"$defs", "definitions"} {
		definitions := top.sub(key)
		if definitions == nil {
			continue
		}
		for _, n := range definitions.names {
			if d := definitions.sub(n); d != nil && (d.text("$anchor") == name || d.text("$dynamicAnchor") == name) {
				return d, true
			}
		}
	}
	return nil, false
}
