package images

import (
	"bytes"
	"slices"
)

// hasCRLF tells whether a text was written with Windows line ends, by its first
// line. A CRLF further down is content: a request in a here-document, say.
func hasCRLF(text []byte) bool {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return bytes.HasSuffix(line, []byte("\r"))
}

// converts tells whether the interpreter takes a carriage return for content.
// Shells do; the others read either line end.
func (ch *Choice) converts() bool {
	return slices.Contains([]string{"sh", "bash"}, ch.Interpreter.Kind)
}

// rereads tells whether the interpreter looks at the #! line itself and, unless
// its own name stands there, runs something else (perl) or refuses (ruby).
func (ch *Choice) rereads() bool {
	return slices.Contains([]string{"perl", "ruby"}, ch.Interpreter.Kind)
}

// Normalize yields the text that is executed: without a byte order mark; for
// shells with LF where the file has CRLF; for perl and ruby with `##` where a
// `#!` names somebody else. Line numbers stay as they are.
func Normalize(text []byte, ch Choice) []byte {
	text = bytes.TrimPrefix(text, []byte(bom))
	if ch.CRLF && ch.converts() {
		text = bytes.TrimSuffix(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\r"))
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if ch.rereads() && bytes.HasPrefix(line, []byte("#!")) && !bytes.Contains(line, []byte(ch.Interpreter.Kind)) {
		text = slices.Clone(text)
		text[1] = '#'
	}
	return text
}
