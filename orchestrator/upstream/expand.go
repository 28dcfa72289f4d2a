package upstream

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// expand puts variables into all that starts a server. A variable that is not
// set and has no default makes this one server unusable and no other.
func expand(s Server, lookup func(string) (string, bool)) Server {
	e := &expander{lookup: lookup}
	s.Command = e.text("command", s.Command)
	s.Args = slices.Clone(s.Args)
	for i, arg := range s.Args {
		s.Args[i] = e.text(fmt.Sprintf("args[%d]", i), arg)
	}
	s.Cwd = e.text("cwd", s.Cwd)
	s.URL = e.text("url", s.URL)
	s.Env = e.table("env", s.Env)
	s.Headers = e.table("headers", s.Headers)
	s.expanded, s.Problem = e.used, e.problem
	return s
}

type expander struct {
	lookup  func(string) (string, bool)
	used    []string
	problem string
}

func (e *expander) table(field string, in map[string]string) map[string]string {
	out := make(map[string]string, len(in))
	for _, name := range slices.Sorted(maps.Keys(in)) {
		out[name] = e.text(field+"."+name, in[name])
	}
	return out
}

// text replaces ${VAR} and ${VAR:-default}. What is not of that form stays as
// it is; what was put in is not looked at again.
func (e *expander) text(field, in string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(in, "${")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		inner, after, closed := strings.Cut(rest, "}")
		name, fallback, hasDefault := strings.Cut(inner, ":-")
		if !closed || !variable(name) {
			out.WriteString("${")
			in = rest
			continue
		}
		out.WriteString(e.value(field, name, fallback, hasDefault))
		in = after
	}
}

func (e *expander) value(field, name, fallback string, hasDefault bool) string {
	value, ok := e.lookup(name)
	if ok && (value != "" || !hasDefault) {
		if !harmless(name) {
			e.used = append(e.used, value)
		}
		return value
	}
	if !hasDefault && e.problem == "" {
		e.problem = fmt.Sprintf("%s wants the variable %s, which is not set", field, name)
	}
	return fallback
}

func variable(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// inherited are the variables of the daemon that a server gets. All others it
// has to be given by its configuration.
func inherited() []string {
	return []string{"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
}

// harmless variables are not kept out of errors: a path without its beginning
// helps nobody.
func harmless(name string) bool {
	return name == "PWD" || slices.Contains(inherited(), name)
}
