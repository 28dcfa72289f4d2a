package images

import (
	"errors"
	"fmt"
	"strings"
)

// A command line is split here and not by a shell library: nothing may be
// expanded, and a caller's text must not reach an evaluator at all.

// dialect is what a command line's characters mean outside of single quotes.
type dialect struct {
	refused       string // these outside of any quotes
	refusedQuoted string // these between double quotes
	escapes       func(c byte, quoted bool) (text string, err error)
}

// splitCommand splits a command line as a shell would, and refuses everything
// a shell would evaluate.
func splitCommand(line string) ([]string, error) {
	return split(line, dialect{refused: ";|&<>()`$#\n\r", refusedQuoted: "`$", escapes: shellEscape})
}

// splitEnv splits the text after `env -S` as env does.
func splitEnv(line string) ([]string, error) {
	return split(line, dialect{refused: "$#", refusedQuoted: "$", escapes: envEscape})
}

func shellEscape(c byte, quoted bool) (string, error) {
	if quoted && !strings.ContainsRune("\\\"$`", rune(c)) {
		return `\` + string(c), nil
	}
	return string(c), nil
}

func envEscape(c byte, quoted bool) (string, error) {
	switch c {
	case '\\', '"', '\'', '#', '$':
		return string(c), nil
	case 't':
		return "\t", nil
	case 'n':
		return "\n", nil
	case '_':
		if quoted {
			return " ", nil
		}
	}
	return "", fmt.Errorf("the escape \\%c is not supported", c)
}

func split(line string, d dialect) ([]string, error) {
	var words []string
	for rest := strings.TrimLeft(line, " \t"); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		word, after, err := d.word(rest)
		if err != nil {
			return nil, err
		}
		words, rest = append(words, word), after
	}
	return words, nil
}

// word takes the first word off a line that does not begin with a blank.
func (d dialect) word(line string) (word, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(line); {
		switch c := line[i]; {
		case c == ' ' || c == '\t':
			return b.String(), line[i:], nil
		case c == '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return "", "", errors.New("a single quote is not closed")
			}
			b.WriteString(line[i+1 : i+1+end])
			i += end + 2
		case c == '"':
			text, n, err := d.quoted(line[i+1:])
			if err != nil {
				return "", "", err
			}
			b.WriteString(text)
			i += n + 1
		default:
			text, n, err := d.char(line[i:], d.refused, false)
			if err != nil {
				return "", "", err
			}
			b.WriteString(text)
			i += n
		}
	}
	return b.String(), "", nil
}

// quoted reads up to the closing double quote and tells how many bytes that were.
func (d dialect) quoted(text string) (string, int, error) {
	var b strings.Builder
	for i := 0; i < len(text); {
		if text[i] == '"' {
			return b.String(), i + 1, nil
		}
		piece, n, err := d.char(text[i:], d.refusedQuoted, true)
		if err != nil {
			return "", 0, err
		}
		b.WriteString(piece)
		i += n
	}
	return "", 0, errors.New("a double quote is not closed")
}

// char reads one character, escaped or not.
func (d dialect) char(text, refused string, quoted bool) (string, int, error) {
	switch c := text[0]; {
	case c == '\\' && len(text) == 1:
		return "", 0, errors.New("it ends in a backslash")
	case c == '\\':
		piece, err := d.escapes(text[1], quoted)
		return piece, 2, err
	case strings.IndexByte(refused, c) >= 0:
		return "", 0, fmt.Errorf("%q stands unquoted: this is a command line, not a shell script", c)
	default:
		return text[:1], 1, nil
	}
}
