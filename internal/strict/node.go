package strict

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Node is a value with its position in the file. The zero value and missing values are absent:
// getters return nothing and report nothing.
type Node struct {
	report *Report
	at     *yaml.Node
	path   string
}

// Found reports whether the value is present and not null.
func (n Node) Found() bool {
	v := n.value()
	return v != nil && v.Tag != "!!null"
}

// IsNull reports whether the value is null or empty.
func (n Node) IsNull() bool {
	v := n.value()
	return v != nil && v.Tag == "!!null"
}

// Problems returns the number of problems found in the whole file so far.
func (n Node) Problems() int { return n.report.Len() }

// Line returns the value's line, 0 if it is absent.
func (n Node) Line() int {
	if n.at == nil {
		return 0
	}
	return n.at.Line
}

// Path returns the value's path: endpoints[2].port.
func (n Node) Path() string { return n.path }

// Into returns the value with problems going to another report.
func (n Node) Into(r *Report) Node {
	n.report = r
	return n
}

// Problem reports a problem with the value. hint may be "".
func (n Node) Problem(hint, format string, a ...any) {
	line, column := 0, 0
	if n.at != nil {
		line, column = n.at.Line, n.at.Column
	}
	n.report.add(line, column, fmt.Sprintf(format, a...), hint)
}

// HasProblem reports whether a problem was already reported at the value's position.
func (n Node) HasProblem() bool {
	return n.at != nil && n.report.at(n.at.Line, n.at.Column)
}

// Within returns the value with the position of a part of its text: the line from 1, and the column
// from 0 in characters. It is exact for plain, quoted and literal scalars without escapes; others keep
// the value's own position. Line 0 is the value itself.
func (n Node) Within(line, column int) Node {
	v := n.value()
	if v == nil || line < 1 || v.Kind != yaml.ScalarNode {
		return n
	}
	at := *v
	switch {
	case v.Style&yaml.LiteralStyle != 0:
		at.Line, at.Column = v.Line+line, 0 // the indentation is not known
	case v.Style&yaml.FoldedStyle != 0 || line > 1:
		return n
	case v.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		at.Column = v.Column + 1 + column
	default:
		at.Column = v.Column + column
	}
	n.at = &at
	return n
}

// value resolves aliases. The checker has verified that they end.
func (n Node) value() *yaml.Node {
	v := n.at
	for v != nil && v.Kind == yaml.AliasNode {
		v = v.Alias
	}
	return v
}

// kind returns the type of a value as a user would call it.
func (n Node) kind() string {
	v := n.value()
	switch v.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	switch v.Tag {
	case "!!str":
		return "the text " + quote(v.Value)
	case "!!int", "!!float":
		return "the number " + v.Value
	case "!!bool":
		return v.Value
	default:
		return quote(v.Value)
	}
}

func (n Node) wrong(want string) {
	n.Problem("", "%s must be %s, not %s", n.label(), want, n.kind())
}

func (n Node) label() string {
	if n.path == "" {
		return "the document"
	}
	return n.path
}

func (n Node) scalar(tags ...string) (string, bool) {
	v := n.value()
	return valueOf(v), v.Kind == yaml.ScalarNode && slices.Contains(tags, v.Tag)
}

func valueOf(v *yaml.Node) string {
	if v.Kind != yaml.ScalarNode {
		return ""
	}
	return v.Value
}

// Text returns a string value.
func (n Node) Text() (string, bool) {
	if !n.Found() {
		return "", false
	}
	s, ok := n.scalar("!!str")
	if !ok {
		hint := ""
		if v := n.value(); v.Kind == yaml.ScalarNode {
			hint = "put it in quotes: " + quote(v.Value)
		}
		n.Problem(hint, "%s must be text, not %s", n.label(), n.kind())
	}
	return s, ok
}

// Enum returns a string value that must be one of words.
func (n Node) Enum(words ...string) (string, bool) {
	s, ok := n.Text()
	if ok && !slices.Contains(words, s) {
		hint := DidYouMean(s, words)
		if hint == "" {
			hint = "one of " + strings.Join(words, ", ")
		}
		n.Problem(hint, "%s: %s is not known", n.label(), quote(s))
		return "", false
	}
	return s, ok
}

// Bool returns a boolean value.
func (n Node) Bool() (value, ok bool) {
	if !n.Found() {
		return false, false
	}
	s, ok := n.scalar("!!bool")
	if !ok {
		n.wrong("true or false")
	}
	return strings.EqualFold(s, "true"), ok
}

// Int returns an integer from low to high.
func (n Node) Int(low, high int64) (int64, bool) {
	if !n.Found() {
		return 0, false
	}
	s, ok := n.scalar("!!int", "!!float")
	v, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 0, 64)
	if f, ferr := strconv.ParseFloat(s, 64); err != nil && ferr == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		v, err = int64(f), nil
	}
	if !ok || err != nil {
		n.wrong("a whole number")
		return 0, false
	}
	if v < low || v > high {
		n.Problem("", "%s must be %s, not %d", n.label(), between(low, high), v)
		return 0, false
	}
	return v, true
}

func between(low, high int64) string {
	switch {
	case high == math.MaxInt64:
		return fmt.Sprintf("at least %d", low)
	case low == math.MinInt64:
		return fmt.Sprintf("at most %d", high)
	default:
		return fmt.Sprintf("between %d and %d", low, high)
	}
}

// Float returns a finite number from low to high.
func (n Node) Float(low, high float64) (float64, bool) {
	if !n.Found() {
		return 0, false
	}
	s, ok := n.scalar("!!int", "!!float")
	v, err := strconv.ParseFloat(s, 64)
	if !ok || err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		n.wrong("a number")
		return 0, false
	}
	switch {
	case v < low && high >= math.MaxFloat64:
		n.Problem("", "%s must be at least %v, not %s", n.label(), low, s)
	case v < low || v > high:
		n.Problem("", "%s must be between %v and %v, not %s", n.label(), low, high, s)
	default:
		return v, true
	}
	return 0, false
}

// Duration returns a non-negative duration such as "250ms". Numbers are rejected because they have
// no unit.
func (n Node) Duration() (time.Duration, bool) {
	if !n.Found() {
		return 0, false
	}
	s, ok := n.scalar("!!str")
	d, err := time.ParseDuration(s)
	if !ok || err != nil || d < 0 {
		n.Problem("write it with its unit: 250ms, 30s, 5m", "%s must be a duration, not %s", n.label(), n.kind())
		return 0, false
	}
	return d, true
}

// List returns the elements of a list.
func (n Node) List() ([]Node, bool) {
	if !n.Found() {
		return nil, false
	}
	v := n.value()
	if v.Kind != yaml.SequenceNode {
		n.wrong("a list")
		return nil, false
	}
	out := make([]Node, len(v.Content))
	for i, c := range v.Content {
		out[i] = Node{n.report, c, fmt.Sprintf("%s[%d]", n.path, i)}
	}
	return out, true
}

// IsText reports whether the value is a string. Like IsList and IsObject it reports no problem.
func (n Node) IsText() bool {
	if !n.Found() {
		return false
	}
	_, ok := n.scalar("!!str")
	return ok
}

// IsList reports whether the value is a list.
func (n Node) IsList() bool { return n.Found() && n.value().Kind == yaml.SequenceNode }

// IsObject reports whether the value is an object.
func (n Node) IsObject() bool { return n.Found() && n.value().Kind == yaml.MappingNode }
