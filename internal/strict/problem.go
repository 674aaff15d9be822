package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one error in a file. Line and Column start at 1; 0 means unknown.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // how to fix it, or ""
}

// String formats the problem on one line: file:line:column: message (hint).
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
		if p.Column > 0 {
			fmt.Fprintf(&b, ":%d", p.Column)
		}
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		fmt.Fprintf(&b, " (%s)", p.Hint)
	}
	return b.String()
}

// Problems are the errors of one file. As an error they are printed one per line.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Err returns the problems as an error, nil if there are none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// Report collects the problems of one file.
type Report struct {
	File     string
	problems Problems
}

// Problems returns the problems in the order of the file.
func (r *Report) Problems() Problems {
	out := slices.Clone(r.problems)
	slices.SortStableFunc(out, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(out)
}

// Len returns the number of problems so far.
func (r *Report) Len() int { return len(r.problems) }

func (r *Report) at(line, column int) bool {
	return slices.ContainsFunc(r.problems, func(p Problem) bool { return p.Line == line && p.Column == column })
}

// maxProblems limits a report: a file with this many problems is not a configuration file.
const maxProblems = 1000

func (r *Report) add(line, column int, message, hint string) {
	if len(r.problems) >= maxProblems {
		return
	}
	r.problems = append(r.problems, Problem{File: r.File, Line: line, Column: column, Message: message, Hint: hint})
}
