package policies

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// field is one key of a rule. The table of them drives reading, explaining and
// the check that the documentation names every key.
type field struct {
	key string // path in the document: "output.keep"
	// own: the key describes one interpreter and cannot stand in defaults.
	own  bool
	read func(ast.Node) (set func(*Rule), err error)
	show func(*Rule) string
}

// bind makes a field of a reader, a check and the place where the value goes.
func bind[T any](key string, at func(*Rule) *T, read func(ast.Node) (T, error), check func(T) error, show func(T) string) field {
	return field{
		key: key,
		read: func(n ast.Node) (func(*Rule), error) {
			v, err := read(n)
			if err != nil {
				return nil, err
			}
			if err := check(v); err != nil {
				return nil, err
			}
			return func(r *Rule) { *at(r) = v }, nil
		},
		show: func(r *Rule) string { return show(*at(r)) },
	}
}

// fields is the table, in the order of the documentation.
func fields() []field {
	return append(interpreterFields(), limitFields()...)
}

func interpreterFields() []field {
	word := matches(wordForm, "a lower-case word")
	extension := matches(extensionForm, "a lower-case extension such as .py")
	list := []field{
		text("image", func(r *Rule) *string { return &r.Image }, checkImage),
		text("kind", func(r *Rule) *string { return &r.Kind }, word),
		texts("argv", func(r *Rule) *[]string { return &r.Argv }, checkArgv),
		texts("aliases", func(r *Rule) *[]string { return &r.Aliases }, each(matches(nameForm, "a name"))),
		texts("extensions", func(r *Rule) *[]string { return &r.Extensions }, each(extension)),
		text("ext", func(r *Rule) *string { return &r.Ext }, extension),
	}
	for i := range list {
		list[i].own = true
	}
	return list
}

func limitFields() []field {
	return []field{
		text("pull", func(r *Rule) *string { return &r.Pull }, oneOf("never", "missing")),
		text("user", func(r *Rule) *string { return &r.User }, checkUser),
		size("memory", func(r *Rule) *int64 { return &r.MemoryBytes }, 8<<20),
		bind("cpu", func(r *Rule) *float64 { return &r.CPUs }, readNumber, checkCPUs, formatCPUs),
		count("pids", func(r *Rule) *int64 { return &r.Pids }, 2),
		count("nofile", func(r *Rule) *int64 { return &r.NoFile }, 16),
		size("shm", func(r *Rule) *int64 { return &r.ShmBytes }, 4<<10),
		duration("timeout", func(r *Rule) *time.Duration { return &r.Timeout }, time.Millisecond),
		duration("timeoutMax", func(r *Rule) *time.Duration { return &r.TimeoutMax }, time.Millisecond),
		duration("grace", func(r *Rule) *time.Duration { return &r.Grace }, 0),
		size("output.keep", func(r *Rule) *int64 { return &r.OutputKeep }, 0),
		size("output.limit", func(r *Rule) *int64 { return &r.OutputLimit }, 1),
		size("tmp", func(r *Rule) *int64 { return &r.TmpBytes }, 64<<10),
		size("work", func(r *Rule) *int64 { return &r.WorkBytes }, 64<<10),
		size("outbox.size", func(r *Rule) *int64 { return &r.OutboxBytes }, 0),
		bind("outbox.files", func(r *Rule) *int { return &r.OutboxFiles }, readCount, atLeast(0, strconv.Itoa), strconv.Itoa),
		text("network", func(r *Rule) *string { return &r.Network }, oneOf("none")),
		texts("env.allow", func(r *Rule) *[]string { return &r.EnvAllow }, each(envPattern())),
		texts("env.deny", func(r *Rule) *[]string { return &r.EnvDeny }, each(envPattern())),
		bind("env.set", func(r *Rule) *map[string]string { return &r.EnvSet }, readTextMap, checkEnvSet, showNames),
		bind("mounts.allow", func(r *Rule) *[]MountRule { return &r.MountsAllow }, readMounts, anything[[]MountRule], showMounts),
		texts("tools.allow", func(r *Rule) *[]string { return &r.ToolsAllow }, each(toolPattern())),
		texts("tools.deny", func(r *Rule) *[]string { return &r.ToolsDeny }, each(toolPattern())),
		bind("tools.confirmDestructive", func(r *Rule) *bool { return &r.ConfirmDestructive }, readBool, anything[bool], strconv.FormatBool),
	}
}

func text(key string, at func(*Rule) *string, check func(string) error) field {
	return bind(key, at, readText, check, func(v string) string { return v })
}

func texts(key string, at func(*Rule) *[]string, check func([]string) error) field {
	return bind(key, at, readTexts, check, func(v []string) string { return strings.Join(v, " ") })
}

func size(key string, at func(*Rule) *int64, least int64) field {
	return bind(key, at, readSize, atLeast(least, FormatSize), FormatSize)
}

func count(key string, at func(*Rule) *int64, least int64) field {
	show := func(v int64) string { return strconv.FormatInt(v, 10) }
	return bind(key, at, readInt, atLeast(least, show), show)
}

func duration(key string, at func(*Rule) *time.Duration, least time.Duration) field {
	return bind(key, at, readDuration, atLeast(least, time.Duration.String), time.Duration.String)
}

func readCount(n ast.Node) (int, error) {
	v, err := readInt(n)
	return int(v), err
}

// checkCPUs keeps a number that engines can express in their periods.
func checkCPUs(v float64) error {
	if !(v >= 0.01 && v <= 1024) {
		return fmt.Errorf("must be between 0.01 and 1024")
	}
	return nil
}

func formatCPUs(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func envPattern() func(string) error {
	return matches(envPatternForm, "a variable's name, in which * stands for anything")
}

func toolPattern() func(string) error {
	return matches(toolPatternForm, "server.tool, in which * stands for anything")
}

func anything[T any](T) error { return nil }

// showNames leaves the values out: they may be secrets.
func showNames(set map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(set)), " ")
}

func showMounts(list []MountRule) string {
	var out []string
	for _, m := range list {
		access := "ro"
		if m.Writable {
			access = "rw"
		}
		out = append(out, m.Path+" ("+access+")")
	}
	return strings.Join(out, ", ")
}
