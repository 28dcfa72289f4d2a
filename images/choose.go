package images

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// Facts are what the choice of an interpreter depends on.
type Facts struct {
	Text     []byte
	FileName string // base name of the script's file; "" when the text came alone
	Runtime  string // options.runtime
	Setting  string // the setting script.interpreter, a command line
	// Permissions is the profile asked for; the default interpreter is the
	// first that can enforce it.
	Permissions string
}

// Choice is the interpreter of one script.
type Choice struct {
	Interpreter Interpreter
	// Argv is the whole command line, without the script's path.
	Argv []string
	// ScriptName is what the script's file is called in the container.
	ScriptName string
	// Why names the rule that decided.
	Why      string
	Warnings []run.Log
	// CRLF: the text's lines end as on Windows.
	CRLF bool
}

// RuntimeAuto is the runtime that stands for none.
const RuntimeAuto = "auto"

// launcher is our own name: a script with #!/usr/bin/env -S mcpx run says that
// it wants to be run by mcpx, and nothing about its language.
const launcher = "mcpx"

// Fields that an error of Choose can be about.
const (
	fieldRuntime = "options.runtime"
	fieldSource  = "source"
	fieldSetting = "script.interpreter"
)

// command is an interpreter as a shebang or a command line names it.
type command struct {
	name  string
	args  []string
	env   []string
	field string
	why   string
}

// Choose decides which interpreter runs a script: its shebang, else the runtime
// asked for, else the setting, else the file's extension, else the default.
func Choose(f Facts, c Catalog) (Choice, error) {
	bang, hasBang, err := ParseShebang(f.Text)
	if err != nil {
		return Choice{}, err
	}
	asked, hasAsked, err := parseCommand(f.Runtime, fieldRuntime)
	if err != nil {
		return Choice{}, err
	}
	choice := Choice{CRLF: hasCRLF(f.Text)}
	switch {
	case hasBang && bang.Interpreter != launcher:
		err = choice.take(c, command{bang.Interpreter, bang.Args, bang.Env, fieldSource, "shebang " + bang.Line})
		if hasAsked && !choice.is(asked, c) {
			choice.warnOverride(f.Runtime)
		}
	case hasAsked:
		err = choice.take(c, asked)
	default:
		err = choice.withoutName(f, c)
	}
	if err != nil {
		return Choice{}, err
	}
	choice.ScriptName = scriptName(f.FileName, choice.Interpreter)
	choice.warnCRLF(hasBang)
	return choice, nil
}

// withoutName decides when neither script nor caller names an interpreter.
func (ch *Choice) withoutName(f Facts, c Catalog) error {
	set, ok, err := parseCommand(f.Setting, fieldSetting)
	if err != nil {
		return err
	}
	if ok {
		return ch.take(c, set)
	}
	if ext := filepath.Ext(f.FileName); ext != "" {
		if i, ok := c.ByExtension(ext); ok {
			return ch.take(c, command{name: i.Name, why: "extension " + strings.ToLower(ext)})
		}
	}
	return ch.byDefault(f, c)
}

// byDefault takes the first default interpreter that can enforce the
// permissions. When none can, it takes the first: to refuse is the policy's part.
func (ch *Choice) byDefault(f Facts, c Catalog) error {
	list := c.defaults()
	if len(list) == 0 {
		return &run.Error{Code: run.CodeUnknownInterpreter, Class: errdefs.ErrInvalidArgument, Field: fieldRuntime,
			Message: "the script does not say what runs it, and no policy has a default; known are " + strings.Join(c.Names(), ", "),
			Hint:    "begin it with a #! line, or set options.runtime"}
	}
	at := max(0, slices.IndexFunc(list, func(i Interpreter) bool {
		return f.Permissions == "" || slices.Contains(i.Permissions, f.Permissions)
	}))
	return ch.take(c, command{name: list[at].Name, why: "default for TypeScript"})
}

// take looks a command up and composes its argv. Arguments given replace those
// of the policy.
func (ch *Choice) take(c Catalog, cmd command) error {
	i, ok := c.Lookup(cmd.name)
	if !ok {
		return unknown(cmd, c)
	}
	ch.Interpreter, ch.Why = i, cmd.why
	argv := i.Argv
	if len(argv) == 0 {
		argv = []string{i.Name}
	}
	if len(cmd.args) > 0 {
		argv = slices.Concat(argv[:1], cmd.args)
	}
	if len(cmd.env) > 0 {
		argv = slices.Concat([]string{"env"}, cmd.env, argv)
	}
	ch.Argv = slices.Clone(argv)
	return nil
}

// parseCommand reads a runtime: a name, or a command line. It is false when
// nothing was asked for.
func parseCommand(line, field string) (command, bool, error) {
	wrong := func(why string) error {
		return &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: field,
			Message: fmt.Sprintf("%s is not a command line: %s", brief(line), why),
			Hint:    `give an interpreter's name or its command line, as in "python3 -u"`}
	}
	if len(line) > MaxShebang {
		return command{}, false, wrong(fmt.Sprintf("it has more than %d bytes", MaxShebang))
	}
	if strings.IndexByte(line, 0) >= 0 {
		return command{}, false, wrong("it holds a NUL byte")
	}
	words, err := splitCommand(line)
	if err != nil {
		return command{}, false, wrong(err.Error())
	}
	if len(words) == 0 || len(words) == 1 && words[0] == RuntimeAuto {
		return command{}, false, nil
	}
	name := path.Base(words[0])
	if strings.Trim(name, "./") == "" {
		return command{}, false, wrong("it names no interpreter")
	}
	return command{name: name, args: words[1:], field: field, why: field + " " + line}, true, nil
}

func unknown(cmd command, c Catalog) error {
	return &run.Error{
		Code: run.CodeUnknownInterpreter, Class: errdefs.ErrInvalidArgument, Field: cmd.field,
		Message: fmt.Sprintf("no policy knows the interpreter %s; known are %s", brief(cmd.name), strings.Join(c.Names(), ", ")),
		Hint:    fmt.Sprintf("to add it, write into the policy file: interpreters: {%s: {image: IMAGE}}", brief(cmd.name)),
	}
}

var saneName = regexp.MustCompile(`^[\pL\pN_][\pL\pN\pM._+-]{0,99}$`)

// scriptName keeps the user's name, because it stands in stack traces, and
// gives it an extension that the interpreter knows.
func scriptName(name string, i Interpreter) string {
	if !saneName.MatchString(name) {
		name = "main"
	}
	if i.named(name) {
		return name
	}
	return name + i.Ext
}

// is tells whether a runtime asked for comes to what was chosen.
func (ch *Choice) is(asked command, c Catalog) bool {
	i, ok := c.Lookup(asked.name)
	return ok && i.Name == ch.Interpreter.Name && len(asked.args) == 0
}

func (ch *Choice) warnOverride(runtime string) {
	ch.warn("shebang_overrides_runtime", fmt.Sprintf("the script's #! line says %s, which wins over options.runtime %s",
		strings.Join(ch.Argv, " "), brief(runtime)))
}

func (ch *Choice) warnCRLF(hasBang bool) {
	switch {
	case ch.CRLF && ch.converts():
		ch.warn("crlf", "the script's lines end in CRLF; they were converted to LF for "+ch.Interpreter.Name)
	case ch.CRLF && hasBang:
		ch.warn("crlf", "the script's lines end in CRLF; its #! line was read without it, its text was left as it is")
	}
}

func (ch *Choice) warn(code, message string) {
	ch.Warnings = append(ch.Warnings, run.Log{Level: "warn", Code: code, Message: message})
}
