package script

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// Resolver finds the file that a request names. The rule is the same on every
// side. Its zero value looks below the caller's directory, for names as they
// are given.
type Resolver struct {
	// Paths are the directories that names are searched in; nil means the
	// built-in places, which a nil entry stands for. Relative ones are relative
	// to the caller's directory.
	Paths []*string
	// UserDir is the user's own scripts directory, the last built-in place.
	UserDir string
	// Extensions are those of known scripts (".py").
	Extensions []string
	// NamesOnly is for callers who do not see this machine's disk: no paths, and
	// nothing is looked for in what they call their directory.
	NamesOnly bool
}

// Resolve yields the program's text. cwd is the caller's directory.
func (r Resolver) Resolve(req run.Request, cwd string) (Script, error) {
	if (req.Source == "") == (req.File == "") {
		return Script{}, eitherOr(req.Source == "")
	}
	if req.Source != "" {
		text := []byte(req.Source)
		return Script{Text: text}, checkText(text, fieldSource)
	}
	cwd, err := cleanCwd(cwd)
	if err != nil {
		return Script{}, err
	}
	path, err := r.find(req.File, cwd)
	if err != nil {
		return Script{}, err
	}
	text, err := readFile(path)
	if err != nil {
		return Script{}, err
	}
	return Script{Name: filepath.Base(path), Path: path, Dir: filepath.Dir(path), Text: text}, checkText(text, fieldFile)
}

func eitherOr(neither bool) error {
	e := &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument, Field: fieldFile,
		Message: "source and file are both set", Hint: "send one of them"}
	if neither {
		e.Field, e.Message = fieldSource, "neither source nor file is set"
	}
	return e
}

// find yields the absolute path of a file that exists.
func (r Resolver) find(file, cwd string) (string, error) {
	if strings.IndexByte(file, 0) >= 0 || tooLong(file) {
		return "", &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument, Field: fieldFile,
			Message: brief(file) + " can't be a file's name"}
	}
	if r.pathShaped(file) {
		return r.findPath(file, cwd)
	}
	return r.search(file, cwd)
}

func (r Resolver) pathShaped(file string) bool {
	return strings.Contains(file, "/") || file == "." || file == ".." || r.hasExtension(file)
}

func (r Resolver) hasExtension(file string) bool {
	return slices.Contains(r.Extensions, strings.ToLower(filepath.Ext(file)))
}

// findPath takes a path as it is written.
func (r Resolver) findPath(file, cwd string) (string, error) {
	if r.NamesOnly {
		return "", &run.Error{Code: run.CodeDenied, Class: errdefs.ErrPermissionDenied, Field: fieldFile,
			Message: "a path means nothing to a daemon whose disk the caller does not share",
			Hint:    "send the text as source, or the bare name of a script that the daemon has"}
	}
	path := filepath.Clean(file)
	if !filepath.IsAbs(file) {
		if cwd == "" {
			return "", &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: fieldCwd,
				Message: brief(file) + " is relative, and the caller's directory is not known", Hint: "send options.cwd, or the whole path"}
		}
		path = filepath.Join(cwd, file)
	}
	if _, err := os.Stat(path); !missing(err) {
		return path, nil // whatever else is wrong with it, reading tells
	}
	hint := "check the path, or send the text as source"
	if !strings.Contains(file, "/") {
		hint = fmt.Sprintf("it was taken for a path because of its extension; to search for the script write %s",
			brief(strings.TrimSuffix(file, filepath.Ext(file))))
	}
	return "", notFound(file, []string{path}, hint)
}

// search looks for a name in every place, in order.
func (r Resolver) search(name, cwd string) (string, error) {
	places := r.places(cwd)
	for _, place := range places {
		hits := r.hits(place, name)
		if len(hits) > 1 {
			return "", &run.Error{Code: run.CodeAmbiguousScript, Class: errdefs.ErrInvalidArgument, Field: fieldFile,
				Message: fmt.Sprintf("%s means %s", brief(name), strings.Join(hits, " and ")),
				Hint:    "give the path of the one that is meant", Searched: []string{place}}
		}
		if len(hits) == 1 {
			return hits[0], nil
		}
	}
	hint := "send options.cwd so that its .mcpx/scripts is searched"
	if len(places) > 0 {
		hint = fmt.Sprintf("mkdir -p %s, and put the script there", quote(places[0]))
	}
	return "", notFound(name, places, hint)
}

// hits are the files in a place that a name can mean.
func (r Resolver) hits(place, name string) []string {
	var hits []string
	for _, ext := range append([]string{""}, r.Extensions...) {
		path := filepath.Join(place, name+ext)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			hits = append(hits, path)
		}
	}
	return slices.Compact(hits)
}

// places are the directories to search, without repetition.
func (r Resolver) places(cwd string) []string {
	if r.NamesOnly {
		cwd = ""
	}
	if r.Paths == nil {
		return unique(r.builtin(cwd))
	}
	var list []string
	for _, path := range r.Paths {
		switch {
		case path == nil:
			list = append(list, r.builtin(cwd)...)
		case filepath.IsAbs(*path):
			list = append(list, filepath.Clean(*path))
		case cwd != "" && *path != "":
			list = append(list, filepath.Join(cwd, *path))
		}
	}
	return unique(list)
}

// configDirs are the names of a project's configuration directory.
func configDirs() []string { return []string{".mcpx", filepath.Join(".config", "mcpx")} }

func (r Resolver) builtin(cwd string) []string {
	var list []string
	if cwd != "" {
		for _, dir := range above(cwd) {
			for _, config := range configDirs() {
				list = append(list, filepath.Join(dir, config, "scripts"))
			}
		}
	}
	if r.UserDir != "" {
		list = append(list, filepath.Clean(r.UserDir))
	}
	return list
}

func unique(list []string) []string {
	var out []string
	for _, v := range list {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

func notFound(file string, searched []string, hint string) error {
	return &run.Error{Code: run.CodeScriptNotFound, Class: errdefs.ErrNotFound, Field: fieldFile,
		Message: "there is no script " + brief(file), Hint: hint, Searched: searched}
}

func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// quote makes a path safe to paste into a shell.
func quote(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
