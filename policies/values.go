package policies

import (
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"mcpx/images"
)

// Readers turn a YAML value into a typed one, or say what is expected there.

func readText(n ast.Node) (string, error) {
	text := ""
	switch v := n.(type) {
	case *ast.StringNode:
		text = v.Value
	case *ast.LiteralNode:
		text = v.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return "", errors.New("expected text; put it in quotes")
	default:
		return "", fmt.Errorf("expected text, found %s", nodeKind(n))
	}
	if strings.IndexByte(text, 0) >= 0 {
		return "", errors.New("holds a NUL byte")
	}
	return text, nil
}

func readSize(n ast.Node) (int64, error) {
	switch v := n.(type) {
	case *ast.IntegerNode:
		return readInt(v)
	case *ast.StringNode:
		return ParseSize(v.Value)
	}
	return 0, fmt.Errorf(`expected a size such as 64MiB, found %s`, nodeKind(n))
}

func readInt(n ast.Node) (int64, error) {
	v, ok := n.(*ast.IntegerNode)
	if !ok {
		return 0, fmt.Errorf("expected a whole number, found %s", nodeKind(n))
	}
	switch number := v.Value.(type) {
	case int64:
		return number, nil
	case uint64:
		if number <= math.MaxInt64 {
			return int64(number), nil
		}
	}
	return 0, errors.New("the number is too large")
}

func readNumber(n ast.Node) (float64, error) {
	if v, ok := n.(*ast.FloatNode); ok {
		return v.Value, nil
	}
	i, err := readInt(n)
	if err != nil {
		return 0, fmt.Errorf("expected a number, found %s", nodeKind(n))
	}
	return float64(i), nil
}

func readBool(n ast.Node) (bool, error) {
	v, ok := n.(*ast.BoolNode)
	if !ok {
		return false, fmt.Errorf("%s, where true or false is due", nodeKind(n))
	}
	return v.Value, nil
}

func readDuration(n ast.Node) (time.Duration, error) {
	text, err := readText(n)
	if err != nil {
		return 0, errors.New(`expected a duration such as 30s or 1m30s`)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 30s or 1m30s", cut(text))
	}
	return d, nil
}

func readTexts(n ast.Node) ([]string, error) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		return nil, fmt.Errorf("expected a list, found %s", nodeKind(n))
	}
	list := []string{}
	for i, item := range seq.Values {
		text, err := readText(item)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		}
		list = append(list, text)
	}
	return list, nil
}

func readTextMap(n ast.Node) (map[string]string, error) {
	entries, ok := mapping(n)
	if !ok {
		return nil, fmt.Errorf("expected NAME: value pairs, found %s", nodeKind(n))
	}
	set := map[string]string{}
	for _, e := range entries {
		name, err := keyText(e)
		if err != nil {
			return nil, err
		}
		text, err := readText(e.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cut(name), err)
		}
		set[name] = text
	}
	return set, nil
}

func readMounts(n ast.Node) ([]MountRule, error) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		return nil, fmt.Errorf("expected a list of {path, writable}, found %s", nodeKind(n))
	}
	list := []MountRule{}
	for i, item := range seq.Values {
		rule, err := readMount(item)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		}
		list = append(list, rule)
	}
	return list, nil
}

func readMount(n ast.Node) (MountRule, error) {
	entries, ok := mapping(n)
	if !ok {
		return MountRule{}, fmt.Errorf("expected {path: /DIR, writable: false}, found %s", nodeKind(n))
	}
	rule := MountRule{}
	for _, e := range entries {
		name, err := keyText(e)
		if err != nil {
			return rule, err
		}
		switch name {
		case "path":
			rule.Path, err = readText(e.Value)
		case "writable":
			v, ok := e.Value.(*ast.BoolNode)
			if !ok {
				return rule, errors.New("writable: expected true or false")
			}
			rule.Writable = v.Value
		default:
			return rule, fmt.Errorf("unknown key %q; known are path, writable", cut(name))
		}
		if err != nil {
			return rule, fmt.Errorf("%s: %w", name, err)
		}
	}
	return rule, checkMount(rule.Path)
}

// checkMount refuses what would hand over the machine: the whole disk, kernel
// interfaces, other programs' sockets.
func checkMount(dir string) error {
	if !path.IsAbs(dir) || path.Clean(dir) != dir {
		return fmt.Errorf("path %q is not absolute and clean", cut(dir))
	}
	if dir == "/" {
		return errors.New("path / is the whole machine; name the directories that are meant")
	}
	for _, kernel := range []string{"/proc", "/sys", "/dev", "/run", "/var/run"} {
		if dir == kernel || strings.HasPrefix(dir, kernel+"/") {
			return fmt.Errorf("path %s lies in %s, which would hand over the machine", cut(dir), kernel)
		}
	}
	return nil
}

var (
	wordForm      = regexp.MustCompile(`^[a-z][a-z0-9.+_-]{0,63}$`)
	nameForm      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}$`)
	extensionForm = regexp.MustCompile(`^\.[a-z0-9][a-z0-9_+-]{0,31}$`)
	// The names of MCP servers and tools hold no space and no comma.
	toolPatternForm = regexp.MustCompile(`^[^\s,]{1,256}$`)
	envPatternForm  = regexp.MustCompile(`^[A-Za-z0-9_*]+$`)
)

// Checks say what is wrong with a value that has the right type.

func atLeast[T int64 | int | float64 | time.Duration](least T, show func(T) string) func(T) error {
	return func(v T) error {
		if v < least || v != v {
			return fmt.Errorf("must be at least %s", show(least))
		}
		return nil
	}
}

func oneOf(words ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("%q is unknown; one of %s", cut(v), strings.Join(words, ", "))
		}
		return nil
	}
}

func matches(re *regexp.Regexp, what string) func(string) error {
	return func(v string) error {
		if !re.MatchString(v) {
			return fmt.Errorf("%q is not %s", cut(v), what)
		}
		return nil
	}
}

func each(check func(string) error) func([]string) error {
	return func(list []string) error {
		for _, v := range list {
			if err := check(v); err != nil {
				return err
			}
		}
		return nil
	}
}

func checkImage(v string) error {
	_, err := images.ParseRef(v)
	return err
}

func checkUser(v string) error {
	uid, gid, ok := strings.Cut(v, ":")
	for _, id := range []string{uid, gid} {
		if _, err := strconv.ParseUint(id, 10, 31); err != nil || !ok {
			return fmt.Errorf(`%q is not "uid:gid" in numbers`, cut(v))
		}
	}
	return nil
}

func checkArgv(list []string) error {
	if len(list) == 0 || list[0] == "" || strings.Contains(list[0], "=") {
		return errors.New("needs the program as its first word")
	}
	return nil
}

func checkEnvSet(set map[string]string) error {
	for name := range set {
		if err := envName(name); err != nil {
			return err
		}
		if reserved(name) {
			return fmt.Errorf("%s is set by mcpx itself", cut(name))
		}
	}
	return nil
}

func nodeKind(n ast.Node) string {
	switch n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor, which policies do not have (values are inherited from defaults)"
	case *ast.TagNode:
		return "a tag, which policies do not have"
	}
	return "something else"
}
