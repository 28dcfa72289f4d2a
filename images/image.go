package images

import (
	"fmt"
	"regexp"
	"strings"
)

// Ref names an image: by name, with a tag, a digest or both; or by its digest
// alone, which is how a locally built image is pinned.
type Ref struct {
	Name   string // "mcpx/python3", "registry.example:5000/team/py"
	Tag    string
	Digest string // "sha256:…"
}

// Pinned tells whether the reference can only ever mean one content.
func (r Ref) Pinned() bool { return r.Digest != "" }

// String writes the reference as it is given to an engine.
func (r Ref) String() string {
	if r.Name == "" {
		return r.Digest
	}
	text := r.Name
	if r.Tag != "" {
		text += ":" + r.Tag
	}
	if r.Digest != "" {
		text += "@" + r.Digest
	}
	return text
}

var (
	digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	tagForm    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	hostForm   = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]+\])(:[0-9]+)?$`)
	partForm   = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*$`)
)

// maxName is what registries take for a repository's name.
const maxName = 255

// ParseRef reads an image reference.
func ParseRef(text string) (Ref, error) {
	if digestForm.MatchString(text) {
		return Ref{Digest: text}, nil
	}
	name, digest, pinned := strings.Cut(text, "@")
	if pinned && !digestForm.MatchString(digest) {
		return Ref{}, refError(text, "the digest must be sha256: and 64 hexadecimal digits")
	}
	ref := Ref{Name: name, Digest: digest}
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		ref.Name, ref.Tag = name[:colon], name[colon+1:]
		if !tagForm.MatchString(ref.Tag) {
			return Ref{}, refError(text, "the tag is malformed")
		}
	}
	if len(ref.Name) > maxName {
		return Ref{}, refError(text, "the name is too long")
	}
	if !validName(ref.Name) {
		return Ref{}, refError(text, "a name is lower-case letters, digits and single separators, in parts between slashes")
	}
	return ref, nil
}

// validName takes a first part that can only be a host for one.
func validName(name string) bool {
	parts := strings.Split(name, "/")
	if len(parts) > 1 && (strings.ContainsAny(parts[0], ".:") || parts[0] == "localhost") {
		if !hostForm.MatchString(parts[0]) {
			return false
		}
		parts = parts[1:]
	}
	for _, part := range parts {
		if !partForm.MatchString(part) {
			return false
		}
	}
	return true
}

func refError(text, why string) error {
	return fmt.Errorf("image %s: %s", brief(text), why)
}
