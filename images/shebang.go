package images

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// MaxShebang is how long a script's first line may be when it is a shebang.
const MaxShebang = 4096

var errNoInterpreter = errors.New("it names no interpreter")

// Shebang is what a script's first line asks for.
type Shebang struct {
	// Interpreter is the name without its directory: which file of that name
	// is run is the image's matter.
	Interpreter string
	// Args stand between interpreter and script.
	Args []string
	// Env is what `env` itself was told, in its own words: "-i", "-u", "NAME", "NAME=value".
	Env  []string
	Line string
	CRLF bool
	BOM  bool
}

const bom = "\ufeff"

// ParseShebang reads the `#!` line of a script. It is false when there is none,
// or nothing in it, which the kernel treats alike.
//
// More is understood than the kernel takes: several arguments are split with
// and without `env -S`.
func ParseShebang(text []byte) (Shebang, bool, error) {
	body, hadBOM := bytes.CutPrefix(text, []byte(bom))
	if !bytes.HasPrefix(body, []byte("#!")) {
		return Shebang{}, false, nil
	}
	line, err := firstLine(body)
	if err != nil {
		return Shebang{}, false, shebangError(err)
	}
	line, crlf := strings.CutSuffix(line, "\r")
	s := Shebang{Line: line, CRLF: crlf, BOM: hadBOM}
	words := fields(line[len("#!"):])
	if len(words) == 0 {
		return Shebang{}, false, nil
	}
	s.Interpreter, s.Args = words[0], words[1:]
	if path.Base(words[0]) == "env" {
		_, after, _ := strings.Cut(line, words[0])
		if err := s.readEnv(strings.Trim(after, " \t")); err != nil {
			return Shebang{}, false, shebangError(err)
		}
	}
	s.Interpreter = path.Base(s.Interpreter)
	if strings.Trim(s.Interpreter, "./") == "" {
		return Shebang{}, false, shebangError(errNoInterpreter)
	}
	return s, true, nil
}

func firstLine(body []byte) (string, error) {
	line := body
	if end := bytes.IndexByte(body, '\n'); end >= 0 {
		line = body[:end]
	}
	if len(line) > MaxShebang {
		return "", fmt.Errorf("it is %d bytes long and may have %d", len(line), MaxShebang)
	}
	if bytes.IndexByte(line, 0) >= 0 {
		return "", errors.New("it holds a NUL byte")
	}
	return string(line), nil
}

// readEnv reads the words after `env`. The kernel hands env one argument, so
// only the first word can be -S, after which quotes mean something.
func (s *Shebang) readEnv(line string) error {
	words := fields(line)
	if len(words) == 0 {
		return errNoInterpreter
	}
	flags, glued, splits := splitString(words[0])
	if !splits {
		return s.readEnvWords(words)
	}
	words, err := splitEnv(glued + strings.TrimPrefix(line, words[0]))
	if err != nil {
		return err
	}
	return s.readEnvWords(append(flags, words...))
}

// splitString knows the spellings of -S: alone, behind other flags ("-vS"),
// with its text glued to it, and long.
func splitString(word string) (flags []string, glued string, splits bool) {
	if long, ok := strings.CutPrefix(word, "--split-string"); ok {
		text, valued := strings.CutPrefix(long, "=")
		return nil, text, valued || long == ""
	}
	cluster, text, ok := strings.Cut(word, "S")
	if !ok || !strings.HasPrefix(cluster, "-") || strings.Trim(cluster[1:], "iv") != "" {
		return nil, "", false
	}
	for _, flag := range cluster[1:] {
		flags = append(flags, "-"+string(flag))
	}
	return flags, text, true
}

// readEnvWords takes env's own options and assignments, then the command.
func (s *Shebang) readEnvWords(words []string) error {
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		name, unset := unsetOption(word)
		switch {
		case word == "-i" || word == "-" || word == "--ignore-environment":
			s.Env = append(s.Env, "-i")
		case word == "-v" || word == "--debug" || word == "--":
		case word == "-u" && len(words) > 0:
			s.Env = append(s.Env, "-u", words[0])
			words = words[1:]
		case unset:
			s.Env = append(s.Env, "-u", name)
		case strings.HasPrefix(word, "-"):
			return fmt.Errorf("env's option %s is not supported", brief(word))
		case strings.IndexByte(word, '=') > 0:
			s.Env = append(s.Env, word)
		default:
			s.Interpreter, s.Args = word, words
			return nil
		}
	}
	return errNoInterpreter
}

func unsetOption(word string) (name string, ok bool) {
	for _, prefix := range []string{"--unset=", "-u"} {
		if name, ok := strings.CutPrefix(word, prefix); ok && name != "" {
			return name, true
		}
	}
	return "", false
}

// fields splits at what the kernel takes for blanks. A carriage return inside
// is none: a file with old Mac line ends must not turn into arguments.
func fields(line string) []string {
	return strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
}

// brief quotes a stranger's word for a message.
func brief(word string) string {
	const most = 80
	if len(word) > most {
		word = strings.ToValidUTF8(word[:most], "") + "…"
	}
	return fmt.Sprintf("%q", word)
}

func shebangError(err error) error {
	return &run.Error{Code: run.CodeInvalidScript, Class: errdefs.ErrInvalidArgument, Field: "source",
		Message: "the script's #! line is wrong: " + err.Error(),
		Hint:    "write it as #!/usr/bin/env python3 or #!/usr/bin/env -S deno run -A"}
}
