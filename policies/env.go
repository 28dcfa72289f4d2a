package policies

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// MaxEnvString is what the kernel takes for one NAME=value with its NUL
// (MAX_ARG_STRLEN, 32 pages).
const MaxEnvString = 128 << 10

// MaxEnvBytes bounds a whole environment, each entry counted with its pointer.
// With the arguments it has to stay below a quarter of the stack, 2 MiB.
const MaxEnvBytes = 1 << 20

const pointerSize = 8

// environment is the policy's variables and those of the caller's that may
// pass; the names of the others are in dropped.
func (r Rule) environment(caller map[string]string) (env map[string]string, dropped []string, err error) {
	env = maps.Clone(r.EnvSet)
	if env == nil {
		env = map[string]string{}
	}
	total := int64(0)
	for _, name := range slices.Sorted(maps.Keys(caller)) {
		if err := checkEnv(name, caller[name]); err != nil {
			return nil, nil, err
		}
		if _, set := r.EnvSet[name]; set || !r.passes(name) {
			dropped = append(dropped, name)
			continue
		}
		env[name] = caller[name]
	}
	for name, value := range env {
		total += int64(len(name) + len(value) + len("=\x00") + pointerSize)
	}
	if total > MaxEnvBytes {
		return nil, nil, &run.Error{Code: run.CodeTooLarge, Class: errdefs.ErrOutOfRange, Field: "options.env",
			Message: fmt.Sprintf("the variables have %d bytes together and may have %d", total, MaxEnvBytes),
			Hint:    "send large values as options.stdin or options.files"}
	}
	return env, dropped, nil
}

// passes tells whether the rule lets a caller's variable in.
func (r Rule) passes(name string) bool {
	match := func(pattern string) bool { return glob(pattern, name) }
	return !reserved(name) && slices.ContainsFunc(r.EnvAllow, match) && !slices.ContainsFunc(r.EnvDeny, match)
}

// reserved names are mcpx's own: a script must be able to believe them.
func reserved(name string) bool { return strings.HasPrefix(name, "MCPX_") }

func checkEnv(name, value string) error {
	field := "options.env." + cut(name)
	err := envName(name)
	if err == nil && strings.IndexByte(value, 0) >= 0 {
		err = errors.New("the value holds a NUL byte")
	}
	if err != nil {
		return &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: field, Message: err.Error()}
	}
	if size := len(name) + len(value) + len("=\x00"); size > MaxEnvString {
		return &run.Error{Code: run.CodeTooLarge, Class: errdefs.ErrOutOfRange, Field: field,
			Message: fmt.Sprintf("the variable has %d bytes with its name and may have %d", size, MaxEnvString),
			Hint:    "send it as options.stdin or options.files"}
	}
	return nil
}

func envName(name string) error {
	switch {
	case name == "":
		return errors.New("a variable has an empty name")
	case strings.ContainsAny(name, "=\x00"):
		return fmt.Errorf("%q is not a variable's name", cut(name))
	}
	return nil
}

// glob matches a name against a pattern in which * stands for anything.
func glob(pattern, name string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, head)
	if !ok {
		return false
	}
	for {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(name, part)
		}
		at := strings.Index(name, part)
		if at < 0 {
			return false
		}
		name, rest = name[at+len(part):], after
	}
}
