package policies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// Severities of a Problem. A document with an error is not used.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// Problem is one thing wrong with a document.
type Problem struct {
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Field    string `json:"field,omitempty"` // "interpreters.python3.memory"
	Message  string `json:"message"`
	Severity string `json:"severity"`
}

func (p Problem) String() string {
	text := fmt.Sprintf("%d:%d: ", p.Line, p.Column)
	if p.Severity == SeverityWarning {
		text += "warning: "
	}
	if p.Field != "" {
		text += p.Field + ": "
	}
	return text + p.Message
}

// LoadError is all that keeps a document from being used.
type LoadError struct {
	Name     string
	Problems []Problem
}

// Error has one line a problem: file:line:column: field: message.
func (e *LoadError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = e.Name + ":" + p.String()
	}
	return strings.Join(lines, "\n")
}

// Unwrap yields the error's class.
func (e *LoadError) Unwrap() error { return errdefs.ErrInvalidArgument }

// sortProblems orders by place and drops repetitions: a value of the defaults
// is judged once for every rule that inherits it.
func sortProblems(list []Problem) []Problem {
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(list)
}

func bySeverity(list []Problem, severity string) []Problem {
	var out []Problem
	for _, p := range list {
		if p.Severity == severity {
			out = append(out, p)
		}
	}
	return out
}
