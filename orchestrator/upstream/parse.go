package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/tailscale/hujson"

	"mcpx/orchestrator/run"
)

// parser reads a configuration from its syntax tree, which knows the lines.
type parser struct {
	text     []byte
	dir      string
	lookup   func(name string) (string, bool)
	warnings []string
}

// node is a value, its name, and the path to it. Names may hold dots.
type node struct {
	name  string
	path  string
	value hujson.Value
}

func (p *parser) file(root hujson.Value) (*File, error) {
	members, err := p.members(node{value: root})
	if err != nil {
		return nil, err
	}
	file := &File{}
	found := false
	for _, m := range members {
		if m.name == "mcpServers" {
			found = true
			if file.Servers, err = p.servers(m); err != nil {
				return nil, err
			}
		}
	}
	if !found {
		return nil, p.wrong(node{path: "mcpServers", value: root}, "is missing", `write {"mcpServers": {"name": {"command": "..."}}}`)
	}
	file.Warnings = p.warnings
	return file, nil
}

func (p *parser) servers(n node) ([]Server, error) {
	members, err := p.members(n)
	if err != nil {
		return nil, err
	}
	servers := make([]Server, 0, len(members))
	for _, m := range members {
		s, err := p.server(m)
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// server reads one entry. Members that hosts have and mcpx does not are only
// warned about: the file belongs to other programs too.
func (p *parser) server(n node) (Server, error) {
	s := Server{Name: n.name}
	if s.Name == "" || len(s.Name) > maxName || strings.ContainsFunc(s.Name, control) {
		return s, p.wrong(n, "is no name for a server", "use up to 128 visible characters")
	}
	members, err := p.members(n)
	if err != nil {
		return s, err
	}
	var kind string
	for _, m := range members {
		switch m.name {
		case "command":
			err = p.into(m, &s.Command, "a string")
		case "args":
			err = p.into(m, &s.Args, "a list of strings")
		case "env":
			err = p.table(m, &s.Env)
		case "cwd":
			err = p.into(m, &s.Cwd, "a string")
		case "url":
			err = p.into(m, &s.URL, "a string")
		case "type":
			err = p.into(m, &kind, "a string")
		case "headers":
			err = p.table(m, &s.Headers)
		case "disabled":
			err = p.into(m, &s.Disabled, "true or false")
		case "mcpx":
			err = p.block(m, &s)
		default:
			p.warnings = append(p.warnings, fmt.Sprintf("line %d: %s is not known to mcpx and has no effect", p.line(m.value), m.path))
		}
		if err != nil {
			return s, err
		}
	}
	return p.complete(n, s, kind)
}

// maxName bounds a server's name, which stands in listings and file names.
const maxName = 128

func control(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' }

// complete settles the transport and expands variables.
func (p *parser) complete(n node, s Server, kind string) (Server, error) {
	var err error
	if s.Transport, err = p.transport(n, s, kind); err != nil {
		return s, err
	}
	s = s.withDefaults()
	if s.Min > s.Max {
		return s, p.wrong(node{path: n.path + ".mcpx.min", value: n.value}, "is more than max", "")
	}
	if s.Min > 0 && s.Scope != ScopeGlobal {
		return s, p.wrong(node{path: n.path + ".mcpx.min", value: n.value}, "only a server of scope global can keep a minimum", "")
	}
	if !s.Disabled {
		s = expand(s, p.lookup)
	}
	if s.Transport == Stdio && !filepath.IsAbs(s.Cwd) {
		s.Cwd = filepath.Join(p.dir, s.Cwd)
	}
	if s.Transport != Stdio && s.Problem == "" && !s.Disabled {
		u, err := url.Parse(s.URL)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return s, p.wrong(node{path: n.path + ".url", value: n.value}, "is not an http or https address", "")
		}
	}
	return s, nil
}

func (p *parser) transport(n node, s Server, kind string) (Transport, error) {
	switch {
	case s.Command != "" && s.URL != "":
		return "", p.wrong(n, "has both command and url", "keep one")
	case s.Command == "" && s.URL == "":
		return "", p.wrong(n, "has neither command nor url", "")
	}
	at := node{path: n.path + ".type", value: n.value}
	switch kind {
	case "":
		if s.URL != "" {
			return HTTP, nil
		}
		return Stdio, nil
	case "stdio":
		if s.Command == "" {
			return "", p.wrong(at, "stdio wants a command", "")
		}
		return Stdio, nil
	case "http", "streamable-http", "streamableHttp":
		if s.URL == "" {
			return "", p.wrong(at, kind+" wants a url", "")
		}
		return HTTP, nil
	case "sse":
		if s.URL == "" {
			return "", p.wrong(at, "sse wants a url", "")
		}
		return SSE, nil
	}
	return "", p.wrong(at, "is not stdio, http or sse", "")
}

// block reads the mcpx block, which is ours: what is not known there is wrong.
func (p *parser) block(n node, s *Server) error {
	members, err := p.members(n)
	if err != nil {
		return err
	}
	for _, m := range members {
		if err := p.blockMember(m, s); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) blockMember(m node, s *Server) error {
	switch m.name {
	case "sharing":
		return word(p, m, &s.Sharing, Shared, Exclusive)
	case "scope":
		return word(p, m, &s.Scope, ScopeGlobal, ScopeSession, ScopeRun, ScopeCall)
	case "min":
		return p.count(m, &s.Min, 0)
	case "max":
		return p.count(m, &s.Max, 1)
	case "idleTimeout":
		return p.duration(m, &s.IdleTimeout)
	case "callTimeout":
		return p.duration(m, &s.CallTimeout)
	case "startTimeout":
		return p.duration(m, &s.StartTimeout)
	case "tools":
		return p.patterns(m, &s.Tools)
	case "excludeTools":
		return p.patterns(m, &s.ExcludeTools)
	case "description":
		return p.into(m, &s.Description, "a string")
	case "disabled":
		return p.into(m, &s.Disabled, "true or false")
	case "image":
		e := p.wrong(m, "servers in containers are not supported by this mcpx, and the server is not run outside of one instead",
			"remove image to run the server on the host, or disable it")
		e.Code, e.Class = run.CodeUnsupportedOption, errdefs.ErrNotImplemented
		return e
	}
	return p.wrong(m, "is not a known member of the mcpx block", "known are "+strings.Join(blockMembers(), ", "))
}

func blockMembers() []string {
	return []string{"sharing", "scope", "min", "max", "idleTimeout", "callTimeout", "startTimeout",
		"tools", "excludeTools", "description", "disabled", "image"}
}

// members lists an object's members; a name that stands there twice is wrong,
// for readers differ in which one they take.
func (p *parser) members(n node) ([]node, error) {
	object, ok := n.value.Value.(*hujson.Object)
	if !ok {
		return nil, p.wrong(n, "wanted an object", "")
	}
	seen := map[string]bool{}
	var out []node
	for _, m := range object.Members {
		literal, ok := m.Name.Value.(hujson.Literal)
		if !ok {
			return nil, p.wrong(n, "has a member without a name", "")
		}
		child := node{literal.String(), literal.String(), m.Value}
		if n.path != "" {
			child.path = n.path + "." + child.path
		}
		if seen[child.path] {
			return nil, p.wrong(child, "stands there twice", "")
		}
		seen[child.path] = true
		out = append(out, child)
	}
	return out, nil
}

func (p *parser) into(n node, target any, wanted string) error {
	text := n.value.Clone()
	text.Standardize()
	decoder := json.NewDecoder(bytes.NewReader(text.Pack()))
	if isNull(n) || decoder.Decode(target) != nil {
		return p.wrong(n, "wanted "+wanted, "")
	}
	return nil
}

func isNull(n node) bool {
	literal, ok := n.value.Value.(hujson.Literal)
	return ok && literal.Kind() == 'n'
}

func (p *parser) table(n node, target *map[string]string) error {
	if _, err := p.members(n); err != nil {
		return err
	}
	return p.into(n, target, "an object of strings")
}

func (p *parser) count(n node, target *int, least int) error {
	if err := p.into(n, target, "a whole number"); err != nil {
		return err
	}
	if *target < least || *target > 1000 {
		return p.wrong(n, fmt.Sprintf("wanted a number from %d to 1000", least), "")
	}
	return nil
}

func (p *parser) duration(n node, target *time.Duration) error {
	var text string
	if err := p.into(n, &text, `a duration such as "30s"`); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return p.wrong(n, `wanted a duration above 0, such as "30s" or "5m"`, "")
	}
	*target = d
	return nil
}

func (p *parser) patterns(n node, target *[]string) error {
	if err := p.into(n, target, "a list of names, globs or /regexps/"); err != nil {
		return err
	}
	if _, err := compilePatterns(*target); err != nil {
		return p.wrong(n, err.Error(), "")
	}
	return nil
}

func word[T ~string](p *parser, n node, target *T, allowed ...T) error {
	var text string
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	wanted := strings.Join(names, ", ")
	if err := p.into(n, &text, "one of "+wanted); err != nil {
		return err
	}
	for _, a := range allowed {
		if string(a) == text {
			*target = a
			return nil
		}
	}
	return p.wrong(n, "wanted one of "+wanted, "")
}

func (p *parser) wrong(n node, message, hint string) *run.Error {
	return &run.Error{Code: run.CodeInvalidOption, Field: n.path, Hint: hint, Class: errdefs.ErrInvalidArgument,
		Message: fmt.Sprintf("line %d: %s: %s", p.line(n.value), orElse(n.path, "the document"), message)}
}

func (p *parser) line(v hujson.Value) int {
	return 1 + bytes.Count(p.text[:min(v.StartOffset, len(p.text))], []byte("\n"))
}
