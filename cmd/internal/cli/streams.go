package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/mattn/go-isatty"
)

// streams are where a command reads and writes: out for results, err for people.
type streams struct {
	in       *os.File
	out, err io.Writer
	// person: err is a terminal.
	person bool
}

func processStreams() streams {
	return streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, person: isTerminal(os.Stderr)}
}

func isTerminal(f *os.File) bool {
	return isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd())
}

// say tells people one line. Parts of it may come from a script, which must not
// be able to write lines in our name or to steer a terminal.
func (s *streams) say(format string, args ...any) {
	fmt.Fprintf(s.err, "mcpx: %s\n", visible(fmt.Sprintf(format, args...))) //nolint:errcheck // nobody is left to tell
}

// visible makes one line of printable characters.
func visible(text string) string {
	text = strings.TrimRight(text, "\r\n\t ")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// document writes v as indented JSON.
func (s *streams) document(v any) error {
	out := json.NewEncoder(s.out)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// table writes rows in columns, the first one being the heads.
func (s *streams) table(rows [][]string) error {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	var failed []error
	for _, row := range rows {
		for i, cell := range row {
			row[i] = visible(cell)
		}
		_, err := fmt.Fprintln(w, strings.Join(row, "\t"))
		failed = append(failed, err)
	}
	return errors.Join(append(failed, w.Flush())...)
}

// size is a number of bytes for people.
func size(bytes int64) string {
	const unit = 1000
	if bytes < unit {
		return fmt.Sprintf("%d B", bytes)
	}
	value, units := float64(bytes)/unit, []string{"kB", "MB", "GB", "TB", "PB"}
	for value >= unit && len(units) > 1 {
		value, units = value/unit, units[1:]
	}
	return fmt.Sprintf("%.1f %s", value, units[0])
}
