// Package script turns a request into the program's text, and a working
// directory's name into what stands there in the container. It reads files and
// makes nothing.
package script

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// MaxBytes is the largest script.
const MaxBytes = 16 << 20

// Script is a program's text and, when it was a file, where that lies.
type Script struct {
	Name string // the file's base name
	Path string // absolute
	Dir  string // the file's directory
	Text []byte
}

// checkText refuses what no interpreter takes for a program. An empty text is
// an empty program.
func checkText(text []byte, field string) error {
	if len(text) > MaxBytes {
		return tooLarge(int64(len(text)), field)
	}
	if at := bytes.IndexByte(text, 0); at >= 0 {
		return invalidScript(field, fmt.Sprintf("the script holds a NUL byte, at offset %d", at), "a script is text; send data as options.stdin or options.files")
	}
	if !utf8.Valid(text) {
		return invalidScript(field, "the script is not UTF-8", "save it as UTF-8")
	}
	return nil
}

func tooLarge(size int64, field string) error {
	return &run.Error{Code: run.CodeTooLarge, Class: errdefs.ErrOutOfRange, Field: field,
		Message: fmt.Sprintf("the script has %d bytes and may have %d", size, MaxBytes),
		Hint:    "send data as options.stdin or options.files"}
}

func invalidScript(field, message, hint string) error {
	return &run.Error{Code: run.CodeInvalidScript, Class: errdefs.ErrInvalidArgument, Field: field, Message: message, Hint: hint}
}

// Linux's limits for a path and for each part of it.
const (
	maxPath = 4095
	maxPart = 255
)

// cleanCwd checks the caller's directory by its form alone. "" stays "".
func cleanCwd(cwd string) (string, error) {
	why := ""
	switch {
	case cwd == "":
		return "", nil
	case strings.IndexByte(cwd, 0) >= 0:
		why = "holds a NUL byte"
	case !filepath.IsAbs(cwd):
		why = "is not an absolute path"
	case tooLong(cwd):
		why = "is longer than a path can be"
	default:
		return filepath.Clean(cwd), nil
	}
	return "", &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: fieldCwd,
		Message: brief(cwd) + " " + why, Hint: "send the directory's whole path, or leave it out"}
}

func tooLong(path string) bool {
	if len(path) > maxPath {
		return true
	}
	for _, part := range strings.Split(path, "/") {
		if len(part) > maxPart {
			return true
		}
	}
	return false
}

// within tells whether path is root or lies below it; both are clean.
func within(root, path string) bool {
	return path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
}

// above lists dir and its parents, nearest first.
func above(dir string) []string {
	list := []string{dir}
	for dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		list = append(list, dir)
	}
	return list
}

// brief quotes a stranger's text for a message.
func brief(text string) string {
	const most = 200
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}

const (
	fieldCwd    = "options.cwd"
	fieldFile   = "file"
	fieldSource = "source"
)
