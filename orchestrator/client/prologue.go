package client

import (
	"bytes"
	"strings"
)

// afterImports finds the end of the imports that a script begins with; 0 when
// it begins with none.
func afterImports(text []byte) int {
	s := scanner{text: text}
	if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) {
		s.at = 3
	}
	if bytes.HasPrefix(text[s.at:], []byte("#!")) {
		s.through("\n")
	}
	end := 0
	for s.blank(); s.importStatement(); s.blank() {
		end = s.at
	}
	return end
}

// scanner reads the little of JavaScript's grammar that imports are made of.
type scanner struct {
	text []byte
	at   int
}

func (s *scanner) rest() []byte { return s.text[s.at:] }

// through goes behind the next mark, or to the end.
func (s *scanner) through(mark string) {
	i := bytes.Index(s.rest(), []byte(mark))
	if i < 0 {
		s.at = len(s.text)
		return
	}
	s.at += i + len(mark)
}

// blank skips white space and comments.
func (s *scanner) blank() {
	for s.at < len(s.text) {
		switch rest := s.rest(); {
		case bytes.HasPrefix(rest, []byte("//")):
			s.through("\n")
		case bytes.HasPrefix(rest, []byte("/*")):
			s.at += 2
			s.through("*/")
		case strings.IndexByte(" \t\r\n\v\f", rest[0]) >= 0:
			s.at++
		case bytes.HasPrefix(rest, []byte("\u00a0")), bytes.HasPrefix(rest, []byte("\ufeff")):
			s.at += len(string([]rune(string(rest[:min(len(rest), 4)]))[:1]))
		default:
			return
		}
	}
}

// keyword consumes a word.
func (s *scanner) keyword(w string) bool {
	rest := s.rest()
	if !bytes.HasPrefix(rest, []byte(w)) || len(rest) > len(w) && (word(rune(rest[len(w)])) || rest[len(w)] == '$') {
		return false
	}
	s.at += len(w)
	return true
}

// importStatement consumes one; if there is none, at stays.
func (s *scanner) importStatement() bool {
	from := s.at
	if s.keyword("import") && s.clause() {
		s.attributes()
		return true
	}
	s.at = from
	return false
}

// clause consumes up to the module's name, which is the first text outside of
// braces.
func (s *scanner) clause() bool {
	depth := 0
	for s.blank(); s.at < len(s.text); s.blank() {
		switch c := s.text[s.at]; {
		case c == '"' || c == '\'':
			if !s.quoted(c) {
				return false
			}
			if depth == 0 {
				return true
			}
			continue
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == ',' || c == '*' || c == '$' || c == '\\' || c >= 0x80 || word(rune(c)):
		default:
			return false // import(…), import.meta, import a = …
		}
		s.at++
	}
	return false
}

func (s *scanner) quoted(by byte) bool {
	for s.at++; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '\\':
			s.at++
		case '\n':
			return false
		case by:
			s.at++
			return true
		}
	}
	return false
}

// attributes consumes with {…} and a semicolon, if they are there.
func (s *scanner) attributes() {
	end := s.at
	s.blank()
	if s.keyword("with") || s.keyword("assert") {
		if s.blank(); s.at < len(s.text) && s.text[s.at] == '{' {
			for s.at < len(s.text) && s.text[s.at] != '}' {
				if c := s.text[s.at]; c != '"' && c != '\'' {
					s.at++
				} else if !s.quoted(c) {
					break
				}
			}
			if s.at < len(s.text) {
				s.at++
				end = s.at
			}
		}
	}
	s.at = end
	s.blank()
	if s.at < len(s.text) && s.text[s.at] == ';' {
		end = s.at + 1
	}
	s.at = end
}
