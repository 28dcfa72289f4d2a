// Package policies says what a script gets: image, limits, environment,
// directories. A Document is read from YAML and then only answers questions:
// Evaluate is pure, and what no rule grants is refused.
package policies

import (
	"fmt"
	"slices"
	"time"

	"mcpx/images"
)

// Document is one policy file with everything it inherits.
type Document struct {
	// Name stands in front of a rule's name in results: "builtin", "site.yaml".
	Name string
	// Warnings are what Check found that does not keep the document from working.
	Warnings []Problem

	rules []Rule
	order []string
}

// Rule is all that a document says of one interpreter, with every value in effect.
type Rule struct {
	Name string

	Image      string
	Pull       string // "never" or "missing"
	Kind       string
	Argv       []string
	Aliases    []string
	Extensions []string
	Ext        string

	User        string // "uid:gid"
	CPUs        float64
	MemoryBytes int64
	Pids        int64
	NoFile      int64
	ShmBytes    int64
	Timeout     time.Duration
	TimeoutMax  time.Duration
	Grace       time.Duration
	OutputKeep  int64
	OutputLimit int64
	TmpBytes    int64
	WorkBytes   int64
	OutboxBytes int64
	OutboxFiles int
	Network     string
	EnvAllow    []string
	EnvDeny     []string
	EnvSet      map[string]string
	MountsAllow []MountRule
	ToolsAllow  []string // "server.tool" patterns
	ToolsDeny   []string
	// ConfirmDestructive refuses tools that may destroy, for nobody is asked.
	ConfirmDestructive bool

	from map[string]source
}

// MountRule allows directories of the host, at and below Path, to be mounted.
type MountRule struct {
	Path     string `json:"path"`
	Writable bool   `json:"writable"`
}

// Reason is one value in effect and where it comes from.
type Reason struct {
	Field string `json:"field"`
	Value string `json:"value"`
	Why   string `json:"why"`
}

// source is where a value stands.
type source struct {
	doc    string
	where  string // "defaults", "interpreters.deno"
	line   int
	column int
}

func (s source) String() string {
	return fmt.Sprintf("%s:%d %s", s.doc, s.line, s.where)
}

// Rules lists the document's rules in their order.
func (d *Document) Rules() []Rule { return slices.Clone(d.rules) }

// Rule finds the rule of an interpreter.
func (d *Document) Rule(name string) (Rule, bool) {
	if at := slices.IndexFunc(d.rules, func(r Rule) bool { return r.Name == name }); at >= 0 {
		return d.rules[at], true
	}
	return Rule{}, false
}

// Catalog is the document as the choice of an interpreter sees it.
func (d *Document) Catalog() images.Catalog {
	c := images.Catalog{Default: slices.Clone(d.order)}
	for _, r := range d.rules {
		c.Interpreters = append(c.Interpreters, images.Interpreter{
			Name: r.Name, Kind: r.Kind, Aliases: r.Aliases, Extensions: r.Extensions, Ext: r.Ext, Argv: r.Argv, Image: r.Image,
		})
	}
	return c
}

// Effective lists every value of the rule with where it comes from, in the
// order of the documentation.
func (r Rule) Effective() []Reason {
	var list []Reason
	for _, f := range fields() {
		why := "not set"
		if s, ok := r.from[f.key]; ok {
			why = s.String()
		}
		list = append(list, Reason{Field: f.key, Value: f.show(&r), Why: why})
	}
	return list
}
