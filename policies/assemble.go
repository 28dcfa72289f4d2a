package policies

import (
	"fmt"
	"slices"
	"strings"
)

// assemble makes a document of what was written and what it inherits. A value
// of a rule is the last of: built-in defaults, the document's defaults, the
// built-in rule of that name if the document extends it, the document's rule.
func assemble(name string, own, builtin content) (*Document, []Problem) {
	defaults := slices.Concat(builtin.defaults, own.defaults)
	inherited := builtin.rules
	if own.extends != Builtin {
		inherited = nil
	}
	doc := &Document{Name: name, order: builtin.order}
	for _, r := range inherited {
		doc.rules = append(doc.rules, newRule(r.name, defaults, r.values, valuesOf(own.rules, r.name)))
	}
	for _, r := range own.rules {
		if len(valuesOf(inherited, r.name)) == 0 {
			doc.rules = append(doc.rules, newRule(r.name, defaults, r.values))
		}
	}
	v := &validator{doc: doc, own: own}
	v.document()
	doc.order = slices.DeleteFunc(slices.Clone(doc.order), func(name string) bool {
		_, ok := doc.Rule(name)
		return !ok
	})
	return doc, v.problems
}

func valuesOf(rules []ruleContent, name string) []assignment {
	if at := slices.IndexFunc(rules, func(r ruleContent) bool { return r.name == name }); at >= 0 {
		return rules[at].values
	}
	return nil
}

func newRule(name string, layers ...[]assignment) Rule {
	r := Rule{Name: name, Kind: name, Argv: []string{name}, from: map[string]source{}}
	for _, layer := range layers {
		for _, a := range layer {
			a.set(&r)
			r.from[a.key] = a.from
		}
	}
	return r
}

// validator finds what is wrong between values that are right by themselves.
type validator struct {
	doc      *Document
	own      content
	problems []Problem
}

func (v *validator) document() {
	if len(v.doc.rules) == 0 {
		v.note(source{line: 1, column: 1}, "", SeverityError, "no interpreter; write interpreters, or extends: builtin")
	}
	for _, name := range v.own.order {
		if _, ok := v.doc.Rule(name); !ok {
			v.note(v.own.orderAt, "order", SeverityError, "%q has no rule under interpreters", cut(name))
		}
	}
	if v.own.ordered {
		v.doc.order = v.own.order
	}
	taken := map[string]string{}
	for _, r := range v.doc.rules {
		taken[r.Name] = r.Name
	}
	for i := range v.doc.rules {
		v.rule(&v.doc.rules[i])
		v.aliases(&v.doc.rules[i], taken)
	}
}

func (v *validator) rule(r *Rule) {
	if r.Image == "" {
		v.key(r, []string{"image"}, SeverityError, "interpreters.%s has no image", r.Name)
	}
	if r.Timeout > r.TimeoutMax {
		v.key(r, []string{"timeout", "timeoutMax"}, SeverityError, "timeout, %s, is above timeoutMax, %s", r.Timeout, r.TimeoutMax)
	}
	if r.OutputKeep > r.OutputLimit {
		v.key(r, []string{"output.keep", "output.limit"}, SeverityError, "keep, %s, is above limit, %s", FormatSize(r.OutputKeep), FormatSize(r.OutputLimit))
	}
	if sum := r.TmpBytes + r.WorkBytes + r.OutboxBytes + r.ShmBytes; r.MemoryBytes < sum || sum < 0 {
		v.key(r, []string{"memory", "tmp", "work", "outbox.size", "shm"}, SeverityWarning, "files in tmp, work, outbox and shm are charged to memory: together they may have more than its %s, and a script that fills them is ended", FormatSize(r.MemoryBytes))
	}
	if r.Pids < leastPids && slices.Contains([]string{"node", "deno", "bun"}, r.Kind) {
		v.key(r, []string{"pids"}, SeverityWarning, "%s needs at least %d and hangs below that", r.Kind, leastPids)
	}
	if strings.HasPrefix(r.User, "0:") {
		v.key(r, []string{"user"}, SeverityWarning, "scripts run as root of their container")
	}
}

// leastPids is the number of threads that node, deno and bun start with.
const leastPids = 8

func (v *validator) aliases(r *Rule, taken map[string]string) {
	for _, alias := range r.Aliases {
		if other, ok := taken[alias]; ok && other != r.Name {
			v.key(r, []string{"aliases"}, SeverityError, "%q is taken by interpreters.%s", alias, other)
		}
		taken[alias] = r.Name
	}
}

// key notes a problem between values, at the first of keys that stands in the
// document itself: a place in the built-in one is of no use here.
func (v *validator) key(r *Rule, keys []string, severity, format string, args ...any) {
	for _, key := range keys {
		if at, ok := r.from[key]; ok && at.doc == v.doc.Name {
			v.note(at, at.where+"."+key, severity, format, args...)
			return
		}
	}
	v.note(v.home(r), "interpreters."+r.Name+"."+keys[0], severity, format, args...)
}

// home is where the rule itself stands.
func (v *validator) home(r *Rule) source {
	for _, c := range v.own.rules {
		if c.name == r.Name {
			return c.at
		}
	}
	return source{line: 1, column: 1}
}

func (v *validator) note(at source, field, severity, format string, args ...any) {
	v.problems = append(v.problems, Problem{Line: at.line, Column: at.column, Field: field, Message: fmt.Sprintf(format, args...), Severity: severity})
}
