package upstream

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// pattern is a name, a glob, or a regular expression between slashes.
type pattern struct {
	glob   string
	regexp *regexp.Regexp
}

func compilePatterns(texts []string) ([]pattern, error) {
	out := make([]pattern, 0, len(texts))
	for _, text := range texts {
		if len(text) > 1 && strings.HasPrefix(text, "/") && strings.HasSuffix(text, "/") {
			re, err := regexp.Compile(text[1 : len(text)-1])
			if err != nil {
				return nil, fmt.Errorf("%s is not a regular expression: %w", text, err)
			}
			out = append(out, pattern{regexp: re})
			continue
		}
		if _, err := path.Match(text, ""); err != nil || text == "" {
			return nil, fmt.Errorf("%q is neither a name nor a glob", text)
		}
		out = append(out, pattern{glob: text})
	}
	return out, nil
}

func (p pattern) match(name string) bool {
	if p.regexp != nil {
		return p.regexp.MatchString(name)
	}
	if p.glob == name {
		return true
	}
	ok, err := path.Match(p.glob, name)
	return err == nil && ok
}

// selection says which tools of a server there are for scripts.
type selection struct{ only, without []pattern }

func newSelection(s Server) (selection, error) {
	only, err := compilePatterns(s.Tools)
	if err != nil {
		return selection{}, fmt.Errorf("MCP server %s: tools: %w", s.Name, err)
	}
	without, err := compilePatterns(s.ExcludeTools)
	if err != nil {
		return selection{}, fmt.Errorf("MCP server %s: excludeTools: %w", s.Name, err)
	}
	return selection{only, without}, nil
}

func (s selection) holds(name string) bool {
	return (len(s.only) == 0 || matchAny(s.only, name)) && !matchAny(s.without, name)
}

func matchAny(patterns []pattern, name string) bool {
	for _, p := range patterns {
		if p.match(name) {
			return true
		}
	}
	return false
}
